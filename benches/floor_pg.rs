//! The least program that keeps `ctrlrun run`'s durable promise on a server: it connects once, as the
//! URL says (without an `sslmode` in it a server is asked for TLS first), makes the same checks of server
//! and store, the same three transactions with the same flushes (BEGIN with
//! the write, then COMMIT alone), and in between starts a command and waits for it.
//!
//! It loads nothing, decides nothing, renews nothing and captures nothing. What `ctrlrun run` costs
//! beyond it is the price of those. `floor_pg URL KEY COMMAND [ARG...]`; the store must be there.
use std::env::args_os;
use std::error::Error;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::{Config, Host, SslMode};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Microseconds: the leases of a reserve and of a begin (EXE-7).
const RESERVED_FOR: i64 = 30_000_000;
const BEGUN_FOR: i64 = 300_000_000;

/// What PGS-7 has a store asked at open, and where it is (PGS-4).
const EXAMINE: &str = "SELECT pg_catalog.current_setting('server_encoding'),
    pg_catalog.current_setting('fsync'), pg_catalog.pg_is_in_recovery(),
    pg_catalog.current_setting('transaction_read_only'),
    (SELECT system_identifier FROM pg_catalog.pg_control_system()),
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8),
    s.schema_version, s.store_id, s.scratch,
    pg_catalog.pg_relation_is_publishable(pg_catalog.to_regclass('ctrlrun.store'))
      AND pg_catalog.pg_relation_is_publishable(pg_catalog.to_regclass('ctrlrun.effects'))
      AND pg_catalog.pg_relation_is_publishable(pg_catalog.to_regclass('ctrlrun.history'))
      AND pg_catalog.pg_relation_is_publishable(pg_catalog.to_regclass('ctrlrun.output'))
  FROM ctrlrun.store s";

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; ";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = args_os().skip(1);
    let usage = "floor_pg URL KEY COMMAND [ARG...]";
    let url = args.next().and_then(|url| url.into_string().ok()).ok_or(usage)?;
    let key = args.next().and_then(|key| key.into_string().ok()).ok_or(usage)?;
    let program = args.next().ok_or(usage)?;
    let code = run(&url, &key, &program, &args.collect::<Vec<_>>())?;
    Ok(ExitCode::from(code))
}

fn run(url: &str, key: &str, program: &OsString, args: &[OsString]) -> Result<u8, Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let client = open(&runtime, url)?;
    let name = program.to_string_lossy();
    let words = args.len();
    let key = key.replace('\'', "''");

    let (reserved, at) = (draw()?, now()?);
    let until = at + RESERVED_FOR;
    let attempt_id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let zeros = HEXLOWER.encode(&[0; 32]);
    let row = format!(
        "INSERT INTO ctrlrun.effects(effect_key, record_version, write_id, reservation_id, state,
           first_attempt, attempt, attempt_id, fingerprint, program, arguments, lease_expires_at,
           reaped, in_doubt, doubted, proven_failures, created_at, updated_at)
         VALUES ('{key}', 1, '\\x{reserved}', '\\x{reserved}', 'reserved', 1, 1, '{attempt_id}',
           '\\x{zeros}', '{name}', {words}, {until}, false, false, false, 0, {at}, {at})
         ON CONFLICT (effect_key) DO NOTHING"
    );
    let data = format!(
        r#"{{"attempt":1,"attempt_id":"{attempt_id}","request":{{"fingerprint":"sha256:{zeros}","program":{name:?},"arguments":{words},"command":null}},"lease_expires_at":{until}}}"#
    );
    let history = event(&key, 1, &reserved, "NULL", "reserved", at, &data);
    write(&runtime, &client, &row, &history)?;

    let (begun, at) = (draw()?, now()?);
    let until = at + BEGUN_FOR;
    let row = format!(
        "UPDATE ctrlrun.effects SET record_version = 2, write_id = '\\x{begun}',
           state = 'executing', lease_expires_at = {until}, updated_at = {at}
         WHERE effect_key = '{key}' AND record_version = 1 AND write_id = '\\x{reserved}'"
    );
    let data = format!(
        r#"{{"lease_expires_at":{until},"ran_on":{{"host":"host","pid":{},"user":"user","directory":"/"}}}}"#,
        std::process::id()
    );
    let history = event(&key, 2, &begun, "NULL", "began", at, &data);
    write(&runtime, &client, &row, &history)?;

    let code = Command::new(program).args(args).status()?.code();

    let (settled, outcome, at) = (draw()?, draw()?, now()?);
    let (state, kind, cause) = match code {
        Some(0) => ("committed", "committed", "NULL"),
        _ => ("ambiguous", "ambiguated", "'exit'"),
    };
    let shown = code.map_or_else(|| "NULL".to_owned(), |code| code.to_string());
    let row = format!(
        "UPDATE ctrlrun.effects SET record_version = 3, write_id = '\\x{settled}',
           state = '{state}', lease_expires_at = NULL, cause = {cause}, exit_code = {shown},
           updated_at = {at}
         WHERE effect_key = '{key}' AND record_version = 2 AND write_id = '\\x{begun}'"
    );
    let data = format!(r#"{{"ending":{{"exit_code":{},"detail":"exited"}}}}"#, code.unwrap_or(-1));
    let history = event(&key, 3, &settled, &format!("'\\x{outcome}'"), kind, at, &data);
    write(&runtime, &client, &row, &history)?;

    Ok(code.map(u8::try_from).transpose()?.unwrap_or(u8::MAX))
}

/// Connects, and checks that the server keeps what it commits.
fn open(runtime: &Runtime, url: &str) -> Result<Client, Box<dyn Error>> {
    runtime.block_on(async {
        let config: Config = url.parse()?;
        let (Some(Host::Tcp(host)), Some(port)) =
            (config.get_hosts().first(), config.get_ports().first())
        else {
            return Err("postgres://USER@ADDRESS:PORT/DATABASE".into());
        };
        let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        if config.get_ssl_mode() == SslMode::Prefer {
            stream.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await?;
            if stream.read_u8().await? != b'N' {
                return Err("the server does TLS, and this program does not".into());
            }
        }
        let (client, connection) = config.connect_raw(stream, NoTls).await?;
        drop(tokio::spawn(connection));
        let answer = client.simple_query(EXAMINE).await?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let fit = row.is_some_and(|row| {
            let expected = [(0, "UTF8"), (1, "on"), (2, "f"), (3, "off"), (6, "2"), (9, "t")];
            expected.iter().all(|(at, wanted)| row.get(*at) == Some(*wanted))
        });
        if fit { Ok(client) } else { Err("the server or the store is not fit".into()) }
    })
}

/// A row and its event, in one statement behind BEGIN; then COMMIT, alone.
fn write(
    runtime: &Runtime,
    client: &Client,
    row: &str,
    history: &str,
) -> Result<(), Box<dyn Error>> {
    runtime.block_on(async {
        let text = format!("{BEGIN}WITH written AS ({row} RETURNING 1) {history} FROM written");
        let answer = client.simple_query(&text).await?;
        // A write that changed another number of rows than one found somebody there.
        if !matches!(answer.last(), Some(SimpleQueryMessage::CommandComplete(1))) {
            return Err("another attempt holds the key".into());
        }
        client.batch_execute("COMMIT").await?;
        Ok(())
    })
}

fn event(
    key: &str,
    revision: u8,
    write_id: &str,
    outcome_id: &str,
    kind: &str,
    at: i64,
    data: &str,
) -> String {
    format!(
        "INSERT INTO ctrlrun.history(effect_key, revision, write_id, outcome_id, type, attempt,
           recorded_at, data)
         SELECT '{key}', {revision}, '\\x{write_id}'::bytea, {outcome_id}::bytea, '{kind}', 1, {at},
           '{data}'"
    )
}

/// Sixteen bytes at random, in hexadecimal digits.
fn draw() -> Result<String, Box<dyn Error>> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes))
}

/// Microseconds since 1970.
fn now() -> Result<i64, Box<dyn Error>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_micros())?)
}
