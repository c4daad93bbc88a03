//! Whether a server does what a store needs, found out by experiment and not by its name (CLI-23): many
//! speak the protocol, and not all of them keep its promises.
//!
//! Every experiment has an oracle of its own beside the number that the server claims: a second
//! connection that looks.
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;

use super::link::{Committed, Link, LinkError};
use super::store::Site;
use super::transaction::Deadline;
use crate::store::check::Check;

/// How long a statement that has to wait for another must have waited to be believed.
const WAITS: Duration = Duration::from_millis(300);

/// Tries everything in a new schema, and drops it.
pub fn probe(site: &Site, within: Duration) -> Vec<Check> {
    let connect = || site.connect(Deadline::new(within)).map_err(|error| error.message);
    let (one, two) = match (connect(), connect()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(why), _) | (_, Err(why)) => return vec![Check::wrong("probe", "not made", why)],
    };
    let name = match getrandom::u64() {
        Ok(number) => format!("ctrlrun_probe_{number:016x}"),
        Err(error) => return vec![Check::wrong("probe", "not made", error.to_string())],
    };
    let bench = Bench { one: &one, two: &two, table: format!("{name}.t"), within };
    let made = one.batch(
        &format!(
            "CREATE SCHEMA {name}; CREATE TABLE {name}.t (k text PRIMARY KEY, v bigint NOT NULL)"
        ),
        within,
    );
    if let Err(error) = made {
        let mend = format!("{error}; it needs the right to make a schema in this database");
        return vec![Check::wrong("probe", "not made", mend)];
    }
    let checks = EXPERIMENTS.iter().map(|(about, good, bad, experiment)| {
        bench.fresh();
        match experiment(&bench) {
            Ok(()) => Check::fine(about, *good),
            Err(why) => Check::wrong(about, why, *bad),
        }
    });
    let mut checks: Vec<Check> = checks.collect();
    // On a connection of its own: the others may have been lost on the way.
    let dropped = connect().and_then(|link| {
        link.batch(&format!("DROP SCHEMA {name} CASCADE"), within)
            .map_err(|error| error.to_string())
    });
    if let Err(why) = dropped {
        checks.push(Check::wrong(
            "probe",
            format!("left behind: {why}"),
            format!("DROP SCHEMA {name} CASCADE"),
        ));
    }
    checks
}

type Experiment = fn(&Bench<'_>) -> Result<(), String>;

/// What is tried; what it means where it holds, and where not.
const EXPERIMENTS: [(&str, &str, &str, Experiment); 7] = [
    (
        "ROLLBACK",
        "rolls back",
        "a refused write would stay: this server can hold no store",
        rolls_back,
    ),
    ("COMMIT", "is seen by another connection", "what is written is not there for others", commits),
    (
        "failed COMMIT",
        "is answered with ROLLBACK, and keeps nothing",
        "a failed write would pass for a committed one",
        tells_rollback,
    ),
    ("conflict", "1 row, then 0 rows", "two would both be told that they hold a key", conflicts),
    (
        "blocked insert",
        "waits, then 0 rows",
        "two would both be told that they hold a key",
        blocked,
    ),
    (
        "insert behind a rollback",
        "waits, then 1 row",
        "a key would be taken by nobody",
        blocked_by_nobody,
    ),
    ("lost race", "is seen", "an outcome would be written over another's", lost_race),
];

struct Bench<'a> {
    one: &'a Link,
    two: &'a Link,
    table: String,
    within: Duration,
}

impl Bench<'_> {
    /// An empty table and no transaction. What goes wrong here shows in the experiment.
    fn fresh(&self) {
        for link in [self.one, self.two] {
            drop(link.batch("ROLLBACK", self.within));
        }
        drop(self.one.batch(&format!("DELETE FROM {}", self.table), self.within));
    }

    /// Runs one statement; the number of rows that the server says it was.
    fn rows(&self, link: &Link, sql: &str) -> Result<u64, LinkError> {
        let sql = sql.replace(":t", &self.table);
        let answer = link.run(self.within, async |client| client.simple_query(&sql).await)?;
        let count = |message: &SimpleQueryMessage| {
            if let SimpleQueryMessage::CommandComplete(rows) = message { Some(*rows) } else { None }
        };
        answer.iter().rev().find_map(count).ok_or_else(|| LinkError::Odd("no tag".to_owned()))
    }

    fn run(&self, link: &Link, sql: &str) -> Result<u64, String> {
        self.rows(link, sql).map_err(|error| format!("{sql}: {error}"))
    }

    /// The value under `k`, as another connection sees it.
    fn value(&self, link: &Link) -> Result<Option<String>, String> {
        let sql = format!("SELECT v FROM {} WHERE k = 'k'", self.table);
        let answer = link.run(self.within, async |client| client.simple_query(&sql).await);
        let answer = answer.map_err(|error| format!("{sql}: {error}"))?;
        Ok(answer.iter().find_map(|message| {
            if let SimpleQueryMessage::Row(row) = message {
                row.get(0).map(str::to_owned)
            } else {
                None
            }
        }))
    }

    /// `sql` on the second connection, which has to wait until the first did `end`; its rows.
    fn behind(&self, sql: &str, end: &str) -> Result<Result<u64, LinkError>, String> {
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            scope.spawn(move || tell.send(self.rows(self.two, sql)));
            match told.recv_timeout(WAITS) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(early) => {
                    drop(self.run(self.one, end));
                    return Err(format!("it did not wait: {}", shown(&early)));
                }
                Err(RecvTimeoutError::Disconnected) => return Err("it was not tried".to_owned()),
            }
            let ended = self.run(self.one, end);
            let answer = told.recv().map_err(|_| "it was not tried".to_owned())?;
            ended.map(|_| answer)
        })
    }
}

const INSERT: &str = "INSERT INTO :t VALUES ('k', 1) ON CONFLICT (k) DO NOTHING";
const OTHERS: &str = "INSERT INTO :t VALUES ('k', 2) ON CONFLICT (k) DO NOTHING";
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

fn shown(answer: &Result<u64, LinkError>) -> String {
    match answer {
        Ok(rows) => format!("{rows} rows"),
        Err(error) => error.to_string(),
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}")) }
}

fn rolls_back(bench: &Bench<'_>) -> Result<(), String> {
    bench.run(bench.one, BEGIN)?;
    expect("rows of an insert", bench.run(bench.one, INSERT)?, 1)?;
    bench.run(bench.one, "ROLLBACK")?;
    expect("what is left", bench.value(bench.two)?, None)
}

fn commits(bench: &Bench<'_>) -> Result<(), String> {
    bench.run(bench.one, BEGIN)?;
    bench.run(bench.one, INSERT)?;
    expect("seen before COMMIT", bench.value(bench.two)?, None)?;
    let committed = bench.one.commit(bench.within).map_err(|error| error.to_string())?;
    expect("the answer", committed, Committed::Yes)?;
    expect("what is there", bench.value(bench.two)?, Some("1".to_owned()))
}

fn tells_rollback(bench: &Bench<'_>) -> Result<(), String> {
    bench.run(bench.one, BEGIN)?;
    bench.run(bench.one, INSERT)?;
    let failed = bench.rows(bench.one, "INSERT INTO :t VALUES ('k', NULL)");
    if failed.is_ok() {
        return Err("a null was taken where none may be".to_owned());
    }
    let committed = bench.one.commit(bench.within).map_err(|error| error.to_string())?;
    expect("the answer", committed, Committed::RolledBack)?;
    expect("what is left", bench.value(bench.two)?, None)
}

fn conflicts(bench: &Bench<'_>) -> Result<(), String> {
    expect("rows of the first insert", bench.run(bench.one, INSERT)?, 1)?;
    expect("rows of the second", bench.run(bench.two, OTHERS)?, 0)?;
    expect("whose it is", bench.value(bench.two)?, Some("1".to_owned()))
}

fn blocked(bench: &Bench<'_>) -> Result<(), String> {
    bench.run(bench.one, BEGIN)?;
    bench.run(bench.one, INSERT)?;
    let answer = bench.behind(OTHERS, "COMMIT")?;
    expect("rows behind the other's commit", answer.map_err(|error| error.to_string())?, 0)?;
    expect("whose it is", bench.value(bench.one)?, Some("1".to_owned()))
}

fn blocked_by_nobody(bench: &Bench<'_>) -> Result<(), String> {
    bench.run(bench.one, BEGIN)?;
    bench.run(bench.one, INSERT)?;
    let answer = bench.behind(OTHERS, "ROLLBACK")?;
    expect("rows behind the other's rollback", answer.map_err(|error| error.to_string())?, 1)?;
    expect("whose it is", bench.value(bench.one)?, Some("2".to_owned()))
}

fn lost_race(bench: &Bench<'_>) -> Result<(), String> {
    bench.run(bench.one, INSERT)?;
    bench.run(bench.one, BEGIN)?;
    let update = "UPDATE :t SET v = 5 WHERE k = 'k' AND v = 1";
    expect("rows of the first update", bench.run(bench.one, update)?, 1)?;
    let late = "UPDATE :t SET v = 6 WHERE k = 'k' AND v = 1";
    match bench.behind(late, "COMMIT")? {
        // A stricter server says it by an error.
        Err(LinkError::Server(error)) if error.code == "40001" => {}
        answer => {
            expect("rows of the late update", answer.map_err(|error| error.to_string())?, 0)?;
        }
    }
    expect("what is there", bench.value(bench.one)?, Some("5".to_owned()))
}
