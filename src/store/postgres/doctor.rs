//! What a server and the store on it are like, for a person who asks (CLI-23).
use super::conninfo::Conninfo;
use super::error::{Fault, could_not};
use super::health;
use super::here::Here;
use super::link::Link;
use super::probe::probe;
use super::read::CLOCK;
use super::schema::{self, Names};
use super::store::Site;
use super::transaction::Deadline;
use crate::plan::time::Timestamp;
use crate::store::check::{Check, Checked, version};
use crate::store::columns::RUNS_SINCE;
use crate::store::location::PostgresAt;
use crate::store::row::Malformed;
use crate::store::{CouldNot, Reason};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A difference of clocks that a person would be misled by. Leases count by the server's alone.
const CLOCKS_MAX: Duration = Duration::from_secs(10);

/// See [`crate::store::check::check`].
pub fn check(at: &PostgresAt, probing: bool, within: Duration) -> Checked {
    let place = at.redacted();
    let mut checked = Checked::default();
    let info = match Conninfo::parse(at.url(), &Here::this_process()) {
        Ok(info) => info,
        Err(error) => {
            checked.checks.push(Check::wrong("store", "it cannot be meant", error.to_string()));
            return checked;
        }
    };
    for warning in &info.warnings {
        checked.checks.push(Check::wrong("connection", "", warning.clone()));
    }
    let names = Names::new(info.schema.clone(), info.quoted_schema(), place);
    let site = Site { info, names };
    let deadline = Deadline::new(within);
    let link = match site.connect(deadline) {
        Ok(link) => link,
        Err(error) => {
            checked.checks.push(Check::wrong("server", "it cannot be used", told(error)));
            return checked;
        }
    };
    let could_not = |fault: Fault| told(could_not(fault, &site.names.place));
    match server(&link, deadline) {
        Ok(server) => checked.checks.extend(server),
        Err(fault) => checked.checks.push(Check::wrong("server", "not told", could_not(fault))),
    }
    let deadline = Deadline::new(within);
    match health::examine(&link, &site.names, false, deadline) {
        Ok(health) => {
            checked.store_id = Some(health.store_id);
            let mark = if health.scratch { ", a scratch store" } else { "" };
            let whereabouts = format!(" in {}{mark}", site.names.quoted());
            let version = version(health.schema_version, &whereabouts, schema::VERSION);
            checked.checks.push(Check::fine("schema", version));
            checked.checks.push(origin(&link, deadline));
            match rights(&link, &site.names, health.schema_version, deadline) {
                Ok(rights) => checked.checks.push(rights),
                Err(fault) => {
                    checked.checks.push(Check::wrong("rights", "not told", could_not(fault)));
                }
            }
        }
        Err(fault) => {
            let told = match super::error::code(&fault) {
                Some("42P01" | "3F000") => told(site.names.missing()),
                Some(_) | None => could_not(fault),
            };
            checked.checks.push(Check::wrong("schema", "no store that can be used", told));
        }
    }
    if probing {
        checked.checks.extend(probe(&site, within));
    }
    checked
}

fn told(error: CouldNot) -> String {
    match error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message,
    }
}

/// What decides whether a commit survives, and whether there can be one.
fn server(link: &Link, deadline: Deadline) -> Result<Vec<Check>, Fault> {
    const SETTINGS: [&str; 7] = [
        "server_version",
        "server_encoding",
        "fsync",
        "full_page_writes",
        "synchronous_commit",
        "synchronous_standby_names",
        "transaction_read_only",
    ];
    let settings: Vec<String> =
        SETTINGS.iter().map(|name| format!("pg_catalog.current_setting('{name}', true)")).collect();
    let sql = format!("SELECT {CLOCK}, pg_catalog.pg_is_in_recovery(), {}", settings.join(", "));
    let before = this_clock();
    let rows = link.query(&sql, &[], deadline.left())?;
    let ours = Timestamp(before.0.midpoint(this_clock().0));
    let row = rows.first().ok_or_else(|| Malformed::new("server_version", "no answer"))?;
    let mut cells = super::cells::Cells::new(row, 0);
    let theirs = Timestamp(cells.get("clock")?);
    let standby: bool = cells.get("pg_is_in_recovery")?;
    let mut setting = |name| -> Result<String, Malformed> {
        Ok(cells.or_null::<&str>(name)?.unwrap_or("unknown").to_owned())
    };
    let [version, encoding, fsync] =
        [setting("server_version")?, setting("server_encoding")?, setting("fsync")?];
    let [pages, commit, standbys, read_only] = [
        setting("full_page_writes")?,
        setting("synchronous_commit")?,
        setting("synchronous_standby_names")?,
        setting("transaction_read_only")?,
    ];
    Ok(vec![
        Check::fine("server", format!("PostgreSQL {version} at {}", link.host)),
        when(encoding == "UTF8", "encoding", &encoding, "keys are UTF-8: use another database"),
        role(standby, &read_only),
        when(
            fsync == "on",
            "fsync",
            &fsync,
            "after a power failure an effect that ran would look as if it had not: ALTER SYSTEM SET \
             fsync = on, and reload",
        ),
        when(
            pages == "on",
            "full_page_writes",
            &pages,
            "a power failure may tear a page: set it on, unless the disk writes pages whole",
        ),
        Check::fine(
            "synchronous_commit",
            match commit.as_str() {
                "off" | "local" => format!("{commit}; raised to on in every transaction of ours"),
                _ => commit,
            },
        ),
        Check::fine(
            "standbys",
            match standbys.as_str() {
                "" => "none is waited for: a fail-over may lose the last commits".to_owned(),
                _ => format!("waited for: {standbys}"),
            },
        ),
        clocks(ours, theirs),
    ])
}

fn when(fine: bool, about: &'static str, found: &str, finding: &str) -> Check {
    if fine { Check::fine(about, found) } else { Check::wrong(about, found, finding) }
}

fn role(standby: bool, read_only: &str) -> Check {
    if standby {
        let mend = "it takes no writes: name the primary, or several hosts with \
                    target_session_attrs=read-write";
        Check::wrong("role", "a standby", mend)
    } else if read_only == "on" {
        let mend = "set default_transaction_read_only off for this role or database";
        Check::wrong("role", "transactions are read-only", mend)
    } else {
        Check::fine("role", "primary, takes writes")
    }
}

fn clocks(ours: Timestamp, theirs: Timestamp) -> Check {
    let apart = ours.since(theirs).max(theirs.since(ours));
    let found = match apart {
        apart if apart < Duration::from_millis(1_000) => "less than 1 s apart".to_owned(),
        apart => format!(
            "the server is {} s {}",
            apart.as_secs(),
            if theirs > ours { "ahead" } else { "behind" }
        ),
    };
    let wrong = "times that ctrlrun shows are the server's: set both clocks by one source";
    when(apart <= CLOCKS_MAX, "clock", &found, wrong)
}

fn this_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What a role that runs effects needs, of each table; and what one needs besides that prunes, or that
/// drives workflows.
const WRITER: [(&str, &str); 9] = [
    ("store", "SELECT"),
    ("effects", "SELECT"),
    ("effects", "INSERT"),
    ("effects", "UPDATE"),
    ("history", "SELECT"),
    ("history", "INSERT"),
    ("output", "SELECT"),
    ("output", "INSERT"),
    ("output", "UPDATE"),
];
const PRUNER: [(&str, &str); 3] =
    [("effects", "DELETE"), ("history", "DELETE"), ("output", "DELETE")];

const DRIVER: [(&str, &str); 17] = [
    ("runs", "SELECT"),
    ("runs", "INSERT"),
    ("runs", "UPDATE"),
    ("run_history", "SELECT"),
    ("run_history", "INSERT"),
    ("inbox", "SELECT"),
    ("inbox", "INSERT"),
    ("inbox", "UPDATE"),
    ("inbox", "DELETE"),
    ("dispatches", "SELECT"),
    ("dispatches", "INSERT"),
    ("dispatches", "UPDATE"),
    ("dispatches", "DELETE"),
    ("wakeups", "SELECT"),
    ("wakeups", "INSERT"),
    ("wakeups", "UPDATE"),
    ("wakeups", "DELETE"),
];

/// What this role may do with the store, whose schema has that version (PGS-8).
fn rights(link: &Link, names: &Names, version: i64, deadline: Deadline) -> Result<Check, Fault> {
    // A table that is not there yet cannot be asked about.
    let driver = if version >= RUNS_SINCE { &DRIVER[..] } else { &[] };
    let floor = format!("{}.store", names.quoted()).replace('\'', "''");
    let sql = format!(
        "SELECT pg_catalog.quote_ident(current_user), {}, \
         pg_catalog.has_column_privilege('{floor}', 'attempt_floor', 'UPDATE')",
        asks(names, &[&WRITER[..], driver, &PRUNER[..]].concat())
    );
    let rows = link.query(&sql, &[], deadline.left())?;
    let row = rows.first().ok_or_else(|| Malformed::new("rights", "no answer"))?;
    let mut cells = super::cells::Cells::new(row, 0);
    let role: &str = cells.get("current_user")?;
    let mut lacking = Vec::new();
    for need in WRITER {
        if !cells.get::<bool>("rights")? {
            lacking.push(need);
        }
    }
    let mut drives = true;
    for _ in driver {
        drives &= cells.get::<bool>("rights")?;
    }
    let mut prunes = true;
    for _ in 0..=PRUNER.len() {
        prunes &= cells.get::<bool>("rights")?;
    }
    let writes = |(_, right): &&(&str, &str)| *right != "SELECT";
    let looks = lacking.iter().all(|need| writes(&need));
    let found = match (lacking.is_empty(), drives, prunes) {
        (true, true, true) if driver.is_empty() => "may run effects, and forget them",
        (true, true, true) => "may run effects and workflows, and forget effects",
        (true, true, false) if driver.is_empty() => {
            "may run effects; may not forget them (ctrlrun prune --forget-keys)"
        }
        (true, true, false) => {
            "may run effects and workflows; may not forget effects (ctrlrun prune --forget-keys)"
        }
        (true, false, true) => "may run effects, and forget them; may not run workflows",
        (true, false, false) => {
            "may run effects; may not run workflows, nor forget effects (ctrlrun prune --forget-keys)"
        }
        // Somebody who may write nothing at all is meant to look.
        (false, ..) if looks && lacking.len() == WRITER.iter().filter(writes).count() => {
            "may only look"
        }
        (false, ..) => {
            let grants: Vec<String> = lacking
                .iter()
                .map(|(table, right)| {
                    format!("GRANT {right} ON {}.{table} TO {role}", names.quoted())
                })
                .collect();
            return Ok(Check::wrong(
                "rights",
                format!("{role} lacks some that a run needs"),
                format!("to run effects: {}", grants.join("; ")),
            ));
        }
    };
    Ok(Check::fine("rights", format!("{role} {found}")))
}

/// Whether this role may write effects: one that may only look must not have a probe run whose answer
/// it could not keep.
///
/// # Errors
/// The link's; what it may not.
pub fn may_write(link: &Link, names: &Names, deadline: Deadline) -> Result<(), Fault> {
    let sql = format!("SELECT pg_catalog.quote_ident(current_user), {}", asks(names, &WRITER));
    let rows = link.query(&sql, &[], deadline.left())?;
    let row = rows.first().ok_or_else(|| Malformed::new("rights", "no answer"))?;
    let mut cells = super::cells::Cells::new(row, 0);
    let role: &str = cells.get("current_user")?;
    for (table, right) in WRITER {
        if !cells.get::<bool>("rights")? {
            let (place, schema) = (&names.place, names.quoted());
            return Err(Fault::Known(CouldNot {
                reason: Reason::Denied,
                message: format!("{place}: {role} may not {right} on {schema}.{table}"),
                hint: Some(format!("GRANT {right} ON {schema}.{table} TO {role}")),
            }));
        }
    }
    Ok(())
}

/// The questions whether the current role has these rights, as columns.
fn asks(names: &Names, needs: &[(&str, &str)]) -> String {
    let ask = |(table, right): &(&str, &str)| {
        let table = format!("{}.{table}", names.quoted()).replace('\'', "''");
        format!("pg_catalog.has_table_privilege('{table}', '{right}')")
    };
    needs.iter().map(ask).collect::<Vec<_>>().join(", ")
}

/// Whether a commit whose answer is lost can be settled (CMT-9).
fn origin(link: &Link, deadline: Deadline) -> Check {
    let asked = link.query(health::ORIGIN, &[], deadline.left());
    when(
        asked.is_ok(),
        "settlement",
        if asked.is_ok() { "the server says which it is" } else { "the server may not be asked" },
        &format!("a commit whose answer is lost cannot be settled: {}", health::GRANT_ORIGIN),
    )
}
