//! The least program that keeps `ctrlrun run`'s durable promise: it opens the same database with the
//! same settings, makes the same three commits, and in between starts a command and waits for it.
//!
//! It decides nothing, renews nothing and captures nothing. What `ctrlrun run` costs beyond it is
//! the price of those. `floor STORE KEY COMMAND [ARG...]`; the store must be there.
use std::env::args_os;
use std::error::Error;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

/// Microseconds: the leases of a reserve and of a begin (EXE-7).
const RESERVED_FOR: i64 = 30_000_000;
const BEGUN_FOR: i64 = 300_000_000;

const RESERVE: &str = "INSERT INTO effects(
    effect_key, record_version, write_id, reservation_id, state, first_attempt, attempt, attempt_id,
    fingerprint, program, arguments, lease_expires_at, reaped, in_doubt, doubted, proven_failures,
    created_at, updated_at)
  VALUES(?1, 1, ?2, ?2, 'reserved', 1, 1, ?3, ?4, ?5, ?6, ?7, 0, 0, 0, 0, ?8, ?8)
  ON CONFLICT(effect_key) DO NOTHING";

const BEGIN: &str = "UPDATE effects
  SET record_version=2, write_id=?3, state='executing', lease_expires_at=?4, updated_at=?5
  WHERE effect_key=?1 AND record_version=1 AND write_id=?2";

const SETTLE: &str = "UPDATE effects
  SET record_version=3, write_id=?3, state=?4, lease_expires_at=NULL, cause=?5, exit_code=?6,
    updated_at=?7
  WHERE effect_key=?1 AND record_version=2 AND write_id=?2";

const HISTORY: &str = "INSERT INTO history(
    effect_key, revision, write_id, outcome_id, type, attempt, recorded_at, data)
  VALUES(?1, ?2, ?3, ?4, ?5, 1, ?6, ?7)";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = args_os().skip(1);
    let usage = "floor STORE KEY COMMAND [ARG...]";
    let store = args.next().ok_or(usage)?;
    let key = args.next().and_then(|key| key.into_string().ok()).ok_or(usage)?;
    let program = args.next().ok_or(usage)?;
    let code = run(&store, &key, &program, &args.collect::<Vec<_>>())?;
    Ok(ExitCode::from(code))
}

fn run(
    store: &OsString,
    key: &str,
    program: &OsString,
    args: &[OsString],
) -> Result<u8, Box<dyn Error>> {
    let mut database = open(store)?;
    let name = program.to_string_lossy();
    let words = i64::try_from(args.len())?;

    let (reserved, at) = (draw()?, now()?);
    let write = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let attempt_id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let until = at + RESERVED_FOR;
    let row = params![key, reserved, attempt_id, [0_u8; 32], name, words, until, at];
    won(write.prepare(RESERVE)?.execute(row)?)?;
    let data = format!(
        r#"{{"attempt":1,"attempt_id":"{attempt_id}","request":{{"fingerprint":"sha256:{:064}","program":{name:?},"arguments":{words},"command":null}},"lease_expires_at":{until}}}"#,
        0
    );
    event(&write, key, 1, &reserved, None, "reserved", at, &data)?;
    write.commit()?;

    let (begun, at) = (draw()?, now()?);
    let write = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let until = at + BEGUN_FOR;
    won(write.prepare(BEGIN)?.execute(params![key, reserved, begun, until, at])?)?;
    let data = format!(
        r#"{{"lease_expires_at":{until},"ran_on":{{"host":"host","pid":{},"user":"user","directory":"/"}}}}"#,
        std::process::id()
    );
    event(&write, key, 2, &begun, None, "began", at, &data)?;
    write.commit()?;

    let code = Command::new(program).args(args).status()?.code();

    let (settled, outcome, at) = (draw()?, draw()?, now()?);
    let write = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (state, kind, cause) = match code {
        Some(0) => ("committed", "committed", None),
        _ => ("ambiguous", "ambiguated", Some("exit")),
    };
    won(write.prepare(SETTLE)?.execute(params![key, begun, settled, state, cause, code, at])?)?;
    let data = format!(r#"{{"ending":{{"exit_code":{},"detail":"exited"}}}}"#, code.unwrap_or(-1));
    event(&write, key, 3, &settled, Some(&outcome), kind, at, &data)?;
    write.commit()?;

    database.close().map_err(|(_, error)| error)?;
    Ok(code.map(u8::try_from).transpose()?.unwrap_or(u8::MAX))
}

/// Opens the store as STO-2 has it: durable at every commit, and checked to be so.
fn open(store: &OsString) -> Result<Connection, Box<dyn Error>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(store, flags)?;
    let mode: String = database.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    database.execute_batch("PRAGMA synchronous=FULL")?;
    let durable: i64 = database.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if mode != "wal" || durable != 2 {
        return Err("the store does not take its settings".into());
    }
    Ok(database)
}

#[expect(clippy::too_many_arguments, reason = "they are the columns of a row")]
fn event(
    write: &Transaction<'_>,
    key: &str,
    revision: i64,
    write_id: &[u8; 16],
    outcome_id: Option<&[u8; 16]>,
    kind: &str,
    at: i64,
    data: &str,
) -> rusqlite::Result<usize> {
    let row = params![key, revision, write_id, outcome_id, kind, at, data];
    write.prepare_cached(HISTORY)?.execute(row)
}

/// A write that changed another number of rows than one found somebody there.
fn won(rows: usize) -> Result<(), Box<dyn Error>> {
    if rows == 1 { Ok(()) } else { Err("another attempt holds the key".into()) }
}

fn draw() -> Result<[u8; 16], Box<dyn Error>> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Microseconds since 1970.
fn now() -> Result<i64, Box<dyn Error>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_micros())?)
}
