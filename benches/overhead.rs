//! What one `ctrlrun run` costs, as a multiple of the least program that could do the same
//! (`benches/floor.rs`), and whether that grows with the number of effects in the store.
//!
//! ```text
//! cargo bench --features bench --bench overhead [-- --pairs 300 --rows 0,1000,1000000]
//! cargo bench --features bench --bench overhead -- --postgres [--pairs 300]
//! ```
//!
//! Both run `true` on a new key in stores of their own, one after the other and in turn on a store
//! of each size, so that what the machine does meanwhile meets all alike. It prints ratios and
//! asserts nothing: the times are the machine's.
//!
//! Both programs are copied first, as an installation does: what the linker has just written lies in
//! small pieces in the page cache, which the larger program pays for more often.
mod server;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds before those that count.
const WARM_UP: usize = 20;

/// One transaction's worth of settled effects, each with the last event of its history.
const FILL: &str = "
  BEGIN IMMEDIATE;
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < :rows)
  INSERT INTO effects(
      effect_key, record_version, write_id, reservation_id, state, first_attempt, attempt,
      attempt_id, fingerprint, program, arguments, reaped, in_doubt, doubted, exit_code,
      proven_failures, created_at, updated_at)
    SELECT printf('filler:%012d', i), 3, randomblob(16), randomblob(16), 'committed', 1, 1,
      'filler', zeroblob(32), 'true', 0, 0, 0, 0, 0, 0, 1767225600000000, 1767225600000000 FROM n;
  INSERT INTO history(effect_key, revision, write_id, outcome_id, type, attempt, recorded_at, data)
    SELECT effect_key, 3, write_id, randomblob(16), 'committed', 1, updated_at, '{}' FROM effects;
  COMMIT;";

/// The two stores of one size, and what was measured on them.
struct Size {
    rows: u64,
    ours: PathBuf,
    floor: PathBuf,
    /// Seconds of ours and of the floor, round by round.
    times: Vec<(f64, f64)>,
}

fn main() -> Outcome<()> {
    let Arguments { pairs, rows, postgres } = arguments()?;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    install(directory.path())?;
    if postgres {
        return server::measure(directory.path(), pairs);
    }
    let mut sizes = Vec::new();
    for rows in rows {
        sizes.push(prepare(directory.path(), rows)?);
    }
    for round in 0..WARM_UP + pairs {
        for size in &mut sizes {
            let key = format!("bench:{round}");
            let ours = timed(ours(directory.path(), &size.ours, &key))?;
            let floor = timed(floor(directory.path(), &size.floor, &key))?;
            if round >= WARM_UP {
                size.times.push((ours.as_secs_f64(), floor.as_secs_f64()));
            }
        }
    }
    report(pairs, &sizes);
    for size in sizes.iter().take(1) {
        let ours = fsyncs(directory.path(), ours(directory.path(), &size.ours, "bench:traced"))?;
        let floor = fsyncs(directory.path(), floor(directory.path(), &size.floor, "bench:traced"))?;
        match (ours, floor) {
            (Some(ours), Some(floor)) => println!("fsyncs per run: ctrlrun {ours}, floor {floor}"),
            _ => println!("fsyncs per run: not counted, strace is not here"),
        }
    }
    Ok(())
}

struct Arguments {
    pairs: usize,
    rows: Vec<u64>,
    postgres: bool,
}

/// `--pairs N`, `--rows N,N,...` and `--postgres`; Cargo's own `--bench` is passed over.
fn arguments() -> Outcome<Arguments> {
    let (mut pairs, mut rows, mut postgres) = (300, vec![0, 1_000, 1_000_000], false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bench" => {}
            "--postgres" => postgres = true,
            "--pairs" => pairs = args.next().ok_or("--pairs N")?.parse()?,
            "--rows" => {
                let list = args.next().ok_or("--rows N,N")?;
                rows = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    Ok(Arguments { pairs, rows, postgres })
}

/// Makes a store by `ctrlrun init`, fills it, and gives the floor program a copy.
fn prepare(directory: &Path, rows: u64) -> Outcome<Size> {
    let ours = directory.join(format!("ours-{rows}.db"));
    let floor = directory.join(format!("floor-{rows}.db"));
    let mut init = ctrlrun(directory);
    init.arg("init").arg("--store").arg(&ours);
    let status = init.status()?;
    if !status.success() || !ours.exists() {
        return Err(format!("ctrlrun init made no store: {status}").into());
    }
    let database = Connection::open(&ours)?;
    if rows > 0 {
        database.execute_batch(&FILL.replace(":rows", &rows.to_string()))?;
    }
    // With the log moved into the database, the copy of the file is a copy of the store.
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    database.close().map_err(|(_, error)| error)?;
    fs::copy(&ours, &floor)?;
    Ok(Size { rows, ours, floor, times: Vec::new() })
}

/// The programs, as they are installed.
const PROGRAMS: [(&str, &str); 3] = [
    ("ctrlrun", env!("CARGO_BIN_EXE_ctrlrun")),
    ("floor", env!("CARGO_BIN_EXE_floor")),
    ("floor_pg", env!("CARGO_BIN_EXE_floor_pg")),
];

fn install(directory: &Path) -> Outcome<()> {
    for (name, built) in PROGRAMS {
        fs::copy(built, directory.join(name))?;
    }
    Ok(())
}

/// `ctrlrun` in an environment of its own.
fn ctrlrun(directory: &Path) -> Command {
    let mut command = Command::new(directory.join("ctrlrun"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("XDG_STATE_HOME", directory);
    command
}

fn ours(directory: &Path, store: &Path, key: &str) -> Command {
    let mut command = ctrlrun(directory);
    command.arg("run").arg("--store").arg(store).args(["--key", key, "--", "true"]);
    command
}

fn floor(directory: &Path, store: &Path, key: &str) -> Command {
    let mut command = Command::new(directory.join("floor"));
    command.arg(store).args([key, "true"]);
    command
}

/// The wall time from before the start of a command to after its end, which must be 0.
fn timed(mut command: Command) -> Outcome<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}

fn report(pairs: usize, sizes: &[Size]) {
    println!("{pairs} pairs a size, of `true` on a new key; times in ms, medians");
    println!(
        "{:>9}  {:>8}  {:>8}  {:>17}  {:>15}",
        "rows", "ctrlrun", "floor", "ratio of medians", "median of ratios"
    );
    for size in sizes {
        let ours = median(size.times.iter().map(|(ours, _)| *ours));
        let floor = median(size.times.iter().map(|(_, floor)| *floor));
        let ratio = median(size.times.iter().map(|(ours, floor)| ours / floor));
        println!(
            "{:>9}  {:>8.3}  {:>8.3}  {:>17.3}  {:>16.3}",
            size.rows,
            ours * 1e3,
            floor * 1e3,
            ours / floor,
            ratio
        );
    }
    // Round by round, so that both sides of a ratio met the same machine.
    if let [.., small, large] = sizes {
        let grown =
            small.times.iter().zip(&large.times).map(|((small, _), (large, _))| large / small);
        let (from, to) = (small.rows, large.rows);
        println!("from {from} to {to} rows ctrlrun takes {:.3} times as long", median(grown));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

/// How often a command and its children call fsync or fdatasync; `None` without strace.
fn fsyncs(directory: &Path, command: Command) -> Outcome<Option<u64>> {
    let counts = directory.join("strace");
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-c", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&counts)
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    for (name, value) in command.get_envs() {
        let value = value.map(OsString::from).unwrap_or_default();
        traced.env(name, value);
    }
    match traced.status() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(status) if !status.success() => return Err(format!("{traced:?}: {status}").into()),
        Ok(_) => {}
    }
    // "% time  seconds  usecs/call  calls  [errors]  syscall", and a total that counts twice.
    let mut calls = 0;
    for line in fs::read_to_string(&counts)?.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if let (Some("fsync" | "fdatasync"), Some(count)) =
            (columns.last().copied(), columns.get(3))
        {
            calls += count.parse::<u64>()?;
        }
    }
    Ok(Some(calls))
}
