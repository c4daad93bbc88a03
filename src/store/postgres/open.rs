//! Opening, making and moving a store on a server. See [`crate::store::open`].
use super::conninfo::Conninfo;
use super::error::{Fault, code, could_not};
use super::health::{self, GRANT_ORIGIN, Health};
use super::here::Here;
use super::link::Link;
use super::schema::{self, Names};
use super::store::{Postgres, Site};
use super::transaction::Deadline;
use crate::store::location::PostgresAt;
use crate::store::{CouldNot, Identity, Mode, Opened, Options, Reason};

/// Opens the store at `at`.
///
/// # Errors
/// As [`crate::store::open`].
pub fn open(at: &PostgresAt, options: &Options) -> Result<Opened, CouldNot> {
    let place = at.redacted();
    let info = Conninfo::parse(at.url(), &Here::this_process()).map_err(|error| CouldNot {
        reason: Reason::Unfit,
        message: format!("{place}: {error}"),
        hint: None,
    })?;
    let deadline = Deadline::new(options.within);
    let mut warnings = info.warnings.clone();
    let names = Names::new(info.schema.clone(), info.quoted_schema(), place);
    let site = Site { info, names };
    let link = site.connect(deadline)?;
    let (health, created) = found(&link, &site.names, options.mode, deadline)
        .map_err(|fault| explained(fault, &site.names))?;
    if options.mode != Mode::Read && health.home.is_none() {
        warnings.push(format!(
            "this role may not ask which server it is on, so a commit whose answer is lost cannot be \
             settled: {GRANT_ORIGIN}"
        ));
    }
    let grants = match options.mode {
        Mode::Create | Mode::Scratch | Mode::Upgrade => Some(site.names.grants()),
        Mode::Read | Mode::Write => None,
    };
    let identity = Identity {
        store_id: health.store_id,
        schema_version: u32::try_from(health.schema_version).unwrap_or(u32::MAX),
        scratch: health.scratch,
        place: site.names.place.clone(),
    };
    let before_commit = options.before_commit.clone().filter(|_| health.scratch);
    let before_run_commit = options.before_run_commit.clone().filter(|_| health.scratch);
    let stops = (before_commit, before_run_commit);
    let store = Postgres::new(site, identity, health, stops, link);
    Ok(Opened { store: Box::new(store), warnings, created, grants })
}

/// What is there; made or moved first where `mode` says so. True if it was made.
fn found(
    link: &Link,
    names: &Names,
    mode: Mode,
    deadline: Deadline,
) -> Result<(Health, bool), Fault> {
    let writes = mode != Mode::Read;
    let made = match mode {
        Mode::Read | Mode::Write => false,
        Mode::Create | Mode::Scratch => {
            match health::examine(link, names, writes, deadline) {
                Ok(health) => return Ok((health, false)),
                Err(fault) if is_missing(&fault) => {}
                Err(fault) => return Err(fault),
            }
            health::examine_server(link, names, deadline)?;
            schema::migrate(link, names, mode == Mode::Scratch, deadline)?
        }
        Mode::Upgrade => {
            health::examine_server(link, names, deadline)?;
            schema::upgrade(link, names, deadline)?;
            false
        }
    };
    Ok((health::examine(link, names, writes, deadline)?, made))
}

fn is_missing(fault: &Fault) -> bool {
    matches!(code(fault), Some("42P01" | "3F000"))
}

fn explained(fault: Fault, names: &Names) -> CouldNot {
    if is_missing(&fault) {
        return names.missing();
    }
    if code(&fault) == Some("42703") {
        // A column that is not there: of all errors of a statement this one is about the schema.
        return names.unfit(
            "its tables are not those of a store of ctrlrun",
            "name another schema: ?schema=NAME",
        );
    }
    could_not(fault, &names.place)
}
