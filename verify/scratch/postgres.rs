//! A scratch store in a schema of its own, in the user's own database: on the same server, through
//! the same pooler, as the same role.
use std::path::Path;
use std::time::Duration;

use ctrlrun::plan::key::Key;
use ctrlrun::store::location::PostgresAt;
use ctrlrun::store::postgres::connect::connect;
use ctrlrun::store::postgres::conninfo::Conninfo;
use ctrlrun::store::postgres::here::{self, Here};
use ctrlrun::store::postgres::link::{Link, LinkError};
use ctrlrun::store::{Location, Mode, Options, open};
use tokio_postgres::types::Type;

use super::directory::{self, Directory};
use super::{ABANDONED_AFTER, Held, Made, Scratch, Sick, Unusable, minutes};

/// What the schema's name starts with; sixteen hexadecimal digits follow, and of further stores of
/// the same verify a word.
const PREFIX: &str = "ctrlrun_verify_";
/// The longest that one exchange may take.
const WITHIN: Duration = Duration::from_secs(20);
/// The SQLSTATE of a right that is missing.
const DENIED: &str = "42501";

/// See the module.
pub struct PostgresScratch {
    info: Conninfo,
    schema: String,
    url: String,
    location: Location,
    directory: Directory,
}

/// Makes it on the server of `at`.
///
/// # Errors
/// [`Unusable`], with what to grant where that is what is missing.
pub fn make(at: &PostgresAt) -> Result<Made, Unusable> {
    let place = at.redacted();
    let unusable = |what: &dyn std::fmt::Display| Unusable {
        message: format!("no scratch store can be made on {place}: {what}"),
        hint: None,
    };
    let drawn = getrandom::u64().map_err(|error| unusable(&error))?;
    let schema = format!("{PREFIX}{drawn:016x}");
    let url = at.url().to_owned();
    let location =
        Location::parse(&with_schema(&url, &schema)).map_err(|error| unusable(&error))?;
    let info = Conninfo::parse(&url, &Here::this_process()).map_err(|error| unusable(&error))?;
    let link = linked(&info).map_err(|error| unusable(&error))?;
    // Ledgers and gates are on this host.
    let here = std::env::temp_dir();
    let mut notes = directory::leftovers(&here);
    notes.extend(leftovers(&link));
    let directory = Directory::make(&here).map_err(|error| unusable(&error))?;
    // In one transaction, so that there is never a schema of ours without its heartbeat.
    let made = format!(
        "CREATE SCHEMA {schema}; \
         CREATE TABLE {schema}.heartbeat AS SELECT clock_timestamp() AS at"
    );
    if let Err(error) = link.batch(&made, WITHIN) {
        let (user, database) = (&info.user, &info.dbname);
        let grant = format!(
            "let it make one: GRANT CREATE ON DATABASE \"{database}\" TO \"{user}\"; \
             verify drops what it makes"
        );
        let hint = is_denied(&error).then_some(grant);
        return Err(Unusable { hint, ..unusable(&error) });
    }
    let scratch = PostgresScratch { info, schema, url, location, directory };
    // From here on a failure drops, and so destroys, what was made.
    let opened = open(&scratch.location, &Options::new(Mode::Scratch, WITHIN));
    let opened = opened.map_err(|error| Unusable {
        message: format!("no scratch store can be made: {}", error.message),
        hint: error.hint,
    })?;
    notes.extend(opened.warnings);
    Ok(Made { scratch: Box::new(scratch), notes })
}

fn is_denied(error: &LinkError) -> bool {
    match error {
        LinkError::Server(error) => error.code == DENIED,
        LinkError::Deadline(_) | LinkError::Lost(_) | LinkError::Odd(_) => false,
    }
}

fn linked(info: &Conninfo) -> Result<Link, String> {
    connect(info, &here::read, WITHIN).map_err(|error| error.to_string())
}

/// The URL with another schema.
fn with_schema(url: &str, schema: &str) -> String {
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let kept = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("schema="));
    let named = format!("schema={schema}");
    let query: Vec<&str> = kept.chain([named.as_str()]).collect();
    format!("{before}?{}", query.join("&"))
}

/// Drops what verifies that were killed have left in this database, and names it.
fn leftovers(link: &Link) -> Vec<String> {
    let sql = "SELECT nspname::text FROM pg_catalog.pg_namespace \
               WHERE nspname ~ '^ctrlrun_verify_[0-9a-f]{16}$' ORDER BY 1";
    let Ok(rows) = link.query(sql, &[], WITHIN) else {
        return Vec::new();
    };
    let names = rows.iter().filter_map(|row| row.try_get::<_, String>(0).ok());
    names.filter_map(|schema| leftover(link, &schema)).collect()
}

fn leftover(link: &Link, schema: &str) -> Option<String> {
    let sql = format!(
        "SELECT EXTRACT(EPOCH FROM clock_timestamp() - at)::float8 FROM {schema}.heartbeat"
    );
    let rows = link.query(&sql, &[], WITHIN);
    let silent = match &rows {
        Ok(rows) => rows.first()?.try_get::<_, f64>(0).ok()?,
        // It went while we looked, or is another role's.
        Err(LinkError::Server(error)) if error.code != DENIED => return None,
        Err(error) => return Some(format!("a scratch store {schema} is left alone: {error}")),
    };
    let silent = Duration::try_from_secs_f64(silent).unwrap_or(Duration::ZERO);
    let ago = minutes(silent);
    if silent < ABANDONED_AFTER {
        return Some(format!(
            "left the schema {schema} alone: its verify was alive {ago} ago; it is dropped by the next run after an hour"
        ));
    }
    Some(match drop_all(link, schema) {
        Ok(()) => {
            format!(
                "dropped the schema {schema}, which a verify that was killed {ago} ago had left"
            )
        }
        Err(error) => format!("the schema {schema} was left by a verify that was killed: {error}"),
    })
}

/// Drops a scratch store and the further ones of the same verify.
fn drop_all(link: &Link, schema: &str) -> Result<(), LinkError> {
    link.batch(
        &format!(
            "DROP SCHEMA IF EXISTS {schema}_newer CASCADE; \
             DROP SCHEMA IF EXISTS {schema}_locked CASCADE; \
             DROP SCHEMA IF EXISTS {schema} CASCADE"
        ),
        WITHIN,
    )
}

impl PostgresScratch {
    fn link(&self) -> Result<Link, String> {
        linked(&self.info)
    }

    /// The URL of a further store.
    fn beside(&self, name: &str) -> String {
        with_schema(&self.url, &format!("{}_{name}", self.schema))
    }

    /// The same, made.
    fn another(&self, name: &str) -> Result<String, String> {
        let url = self.beside(name);
        let location = Location::parse(&url).map_err(|error| error.message)?;
        open(&location, &Options::new(Mode::Scratch, WITHIN)).map_err(|error| error.message)?;
        Ok(url)
    }
}

impl Scratch for PostgresScratch {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn beat(&self) {
        // A server that is away now is there again before an hour is over, or nothing is left to drop.
        self.directory.beat();
        let beat = format!("UPDATE {}.heartbeat SET at = clock_timestamp()", self.schema);
        let _ = self.link().map(|link| link.batch(&beat, WITHIN));
    }

    fn forget(&self, key: &Key) -> Result<(), String> {
        let (link, schema) = (self.link()?, &self.schema);
        let key = key.as_str();
        // One statement, and so one transaction.
        let sql = format!(
            "WITH gone AS (DELETE FROM {schema}.effects WHERE effect_key = $1 RETURNING attempt), \
             history AS (DELETE FROM {schema}.history WHERE effect_key = $1), \
             output AS (DELETE FROM {schema}.output WHERE effect_key = $1) \
             UPDATE {schema}.store SET attempt_floor = \
               greatest(attempt_floor, (SELECT max(attempt) FROM gone))"
        );
        let changed = link.execute(&sql, &[(&key, Type::TEXT)], WITHIN);
        changed.map(drop).map_err(|error| error.to_string())
    }

    fn tamper(&self, key: &Key) -> Result<(), String> {
        let sql =
            format!("UPDATE {}.effects SET detail = 'exited 3' WHERE effect_key = $1", self.schema);
        match self.link()?.execute(&sql, &[(&key.as_str(), Type::TEXT)], WITHIN) {
            Ok(1) => Ok(()),
            Ok(changed) => Err(format!("{changed} rows were changed")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn sick(&self) -> Result<Vec<Sick>, String> {
        let sick = |what, url: String, exits| Sick {
            what,
            store: url.into(),
            rig: "",
            file_limit: None,
            exits,
            holds: None,
        };
        let text = |error: LinkError| error.to_string();
        // Port 1 of this host: nobody listens there.
        let away = "postgres://nobody@127.0.0.1:1/none?sslmode=disable".to_owned();
        let mut all =
            vec![sick("missing", self.beside("missing"), &[78]), sick("out of reach", away, &[69])];
        // This may be asked more than once, and what is newer by now cannot be made again.
        let gone = format!("DROP SCHEMA IF EXISTS {}_newer CASCADE", self.schema);
        self.link()?.batch(&gone, WITHIN).map_err(text)?;
        let newer = self.another("newer")?;
        let raised =
            format!("UPDATE {}_newer.store SET schema_version = schema_version + 1", self.schema);
        self.link()?.batch(&raised, WITHIN).map_err(text)?;
        all.push(sick("newer schema", newer, &[78]));

        let locked = self.another("locked")?;
        let (info, schema) = (self.info.clone(), self.schema.clone());
        let lock = move || {
            let holder = linked(&info)?;
            let lock = format!("BEGIN; LOCK TABLE {schema}_locked.effects");
            holder.batch(&lock, WITHIN).map_err(text)?;
            Ok(Box::new(holder) as Box<dyn Send>)
        };
        all.push(Sick { holds: Some(Box::new(lock)), ..sick("locked", locked, &[69]) });

        let own = with_schema(&self.url, &self.schema);
        let rigged = |what, rig, url: &str| Sick { rig, ..sick(what, url.to_owned(), &[69]) };
        all.push(rigged("out of reach at the load", "load:1-:fail", &own));
        all.push(rigged("out of reach at the write", "append:1-:fail", &own));
        Ok(all)
    }

    fn held(&self) -> Result<Held, String> {
        let (link, schema) = (self.link()?, &self.schema);
        let count = |sql: &str| -> Result<u64, String> {
            let rows = link.query(sql, &[], WITHIN).map_err(|error| error.to_string())?;
            let counted = rows.first().and_then(|row| row.try_get::<_, i64>(0).ok());
            Ok(counted.and_then(|counted| u64::try_from(counted).ok()).unwrap_or(0))
        };
        let rows = |table: &str| count(&format!("SELECT count(*) FROM {schema}.{table}"));
        let size = format!(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = '{schema}' AND c.relkind = 'r'"
        );
        let connections = "SELECT count(*) FROM pg_catalog.pg_stat_activity \
                           WHERE datname = current_database() AND usename = current_user";
        // Many times what the longest of ours takes: it holds back what may be cleaned up.
        let stale = "SELECT count(*) FROM pg_catalog.pg_stat_activity \
                     WHERE datname = current_database() AND usename = current_user \
                       AND application_name LIKE 'ctrlrun%' \
                       AND xact_start < clock_timestamp() - interval '20 seconds'";
        Ok(Held {
            effects: rows("effects")?,
            history: rows("history")?,
            outputs: rows("output")?,
            bytes: count(&size)?,
            stale_transactions: count(stale)?,
            log_is_shared: true,
            // For all of its databases; not every role may look.
            log: count("SELECT sum(size)::bigint FROM pg_ls_waldir()").ok(),
            connections: Some(count(connections)?),
        })
    }

    fn not_applicable(&self, _id: &str) -> Option<&'static str> {
        None
    }
}

impl Drop for PostgresScratch {
    fn drop(&mut self) {
        // What cannot be dropped now is found, dropped and named by the next run.
        let _ = self.link().map(|link| drop_all(&link, &self.schema));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_takes_the_place_of_the_one_that_was_named() {
        // VER-2: the user's own schema is not opened.
        let with = |url| with_schema(url, "s");
        assert_eq!(with("postgres://h/d"), "postgres://h/d?schema=s");
        assert_eq!(
            with("postgres://h/d?schema=mine&sslmode=disable"),
            "postgres://h/d?sslmode=disable&schema=s"
        );
    }
}
