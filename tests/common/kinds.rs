//! The kinds of store, and what a test does to a store from outside: take it away and bring it back,
//! restart what it lives in, read every row of it.
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::TestEnv;
use crate::common::postgres::{Options, Server, server_with};

/// The kinds of store that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The embedded one.
    Sqlite,
    /// A schema of its own on a server that all tests of this process share.
    Postgres,
}

impl Kind {
    /// Whether it can be had here; where not, that is said, and in CI it is a failure.
    pub fn is_here(self) -> bool {
        match self {
            Self::Sqlite => true,
            Self::Postgres => shared().is_some(),
        }
    }
}

/// Makes a test of each kind of store out of each function that takes a [`Kind`].
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $name() {
                    super::$name(crate::at::Kind::Sqlite);
                }
            )*
        }
        mod postgres {
            $(
                #[test]
                fn $name() {
                    if crate::at::Kind::Postgres.is_here() {
                        super::$name(crate::at::Kind::Postgres);
                    }
                }
            )*
        }
    };
}
pub(crate) use on_every_store;

/// One server for all tests of this process; its keeper ends it when the process ends.
fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| server_with(&options())).as_ref()
}

fn options() -> Options {
    Options { settings: vec!["max_connections=200".to_owned()], ..Options::default() }
}

/// Where the store of a place is.
pub enum Home {
    /// In this file.
    File(PathBuf),
    /// In this schema of the shared server.
    Shared(String),
    /// In this schema of a server of its own.
    Own(String, RefCell<Server>),
}

impl Home {
    /// Somewhere new.
    pub fn new(kind: Kind, env: &TestEnv) -> Self {
        match kind {
            Kind::Sqlite => {
                fs::create_dir(env.path("store")).unwrap();
                Self::File(env.path("store/effects.db"))
            }
            Kind::Postgres => {
                static MADE: AtomicU32 = AtomicU32::new(1);
                Self::Shared(format!("place{}", MADE.fetch_add(1, Ordering::Relaxed)))
            }
        }
    }

    /// The same in something that this place has for itself, so that it can be restarted.
    pub fn own(kind: Kind, env: &TestEnv) -> Self {
        match kind {
            Kind::Sqlite => Self::new(kind, env),
            Kind::Postgres => {
                let server = server_with(&options()).unwrap();
                Self::Own("place".to_owned(), RefCell::new(server))
            }
        }
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::File(_) => Kind::Sqlite,
            Self::Shared(_) | Self::Own(..) => Kind::Postgres,
        }
    }

    /// What `--store` takes.
    pub fn store(&self) -> String {
        let url =
            |server: &Server, schema: &str| format!("{}&schema={schema}", server.url("postgres"));
        match self {
            Self::File(path) => path.to_str().unwrap().to_owned(),
            Self::Shared(schema) => url(shared().unwrap(), schema),
            Self::Own(schema, server) => url(&server.borrow(), schema),
        }
    }

    /// Its file, where it has one.
    pub fn file(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Shared(schema) | Self::Own(schema, _) => panic!("{schema} is no file"),
        }
    }

    /// What an operator may see instead of the store for a while: nothing.
    pub fn away(&self) {
        match self {
            Self::File(path) => fs::rename(path, path.with_extension("away")).unwrap(),
            Self::Shared(schema) | Self::Own(schema, _) => {
                self.sql(&format!("ALTER SCHEMA {schema} RENAME TO {schema}_away"));
            }
        }
    }

    /// It is there again.
    pub fn back(&self) {
        match self {
            Self::File(path) => fs::rename(path.with_extension("away"), path).unwrap(),
            Self::Shared(schema) | Self::Own(schema, _) => {
                self.sql(&format!("ALTER SCHEMA {schema}_away RENAME TO {schema}"));
            }
        }
    }

    /// What a crash of the machine leaves of it.
    pub fn restart(&self) {
        match self {
            Self::File(path) => {
                // The shared memory is gone, the log is there.
                let mut index = path.clone().into_os_string();
                index.push("-shm");
                fs::remove_file(index).unwrap();
            }
            Self::Shared(schema) => panic!("others use the server of {schema}"),
            Self::Own(_, server) => server.borrow_mut().restart_after_kill9(),
        }
    }

    /// From now on an outcome of `key` is refused by the store.
    pub fn refuse_updates_of(&self, key: &str) {
        match self {
            Self::File(path) => {
                let store = rusqlite::Connection::open(path).unwrap();
                store
                    .execute_batch(&format!(
                        "CREATE TRIGGER no BEFORE UPDATE ON effects WHEN new.effect_key='{key}'
                         BEGIN SELECT RAISE(ABORT, 'not this one'); END"
                    ))
                    .unwrap();
            }
            Self::Shared(schema) | Self::Own(schema, _) => {
                self.sql(&format!(
                    "CREATE FUNCTION {schema}.no() RETURNS trigger LANGUAGE plpgsql AS
                     $$BEGIN RAISE 'not this one'; END$$;
                     CREATE TRIGGER no BEFORE UPDATE ON {schema}.effects FOR EACH ROW
                     WHEN (new.effect_key = '{key}') EXECUTE FUNCTION {schema}.no()"
                ));
            }
        }
    }

    /// Every row of every table.
    pub fn dump(&self) -> String {
        let mut dump = String::new();
        for table in ["store", "effects", "history", "output"] {
            let rows = match self {
                Self::File(path) => rows_of(path, table),
                Self::Shared(schema) | Self::Own(schema, _) => {
                    let sql = format!("SELECT t::text FROM {schema}.{table} t ORDER BY 1");
                    self.sql(&sql).into_iter().map(|row| row[0].clone().unwrap()).collect()
                }
            };
            dump.extend(rows.into_iter().map(|row| format!("{table}: {row}\n")));
        }
        dump
    }

    /// The rows of a statement on the server.
    pub fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        match self {
            Self::File(path) => panic!("{} is on no server", path.display()),
            Self::Shared(_) => shared().unwrap().sql(sql),
            Self::Own(_, server) => server.borrow().sql(sql),
        }
    }
}

fn rows_of(path: &PathBuf, table: &str) -> Vec<String> {
    let store = rusqlite::Connection::open(path).unwrap();
    let mut rows = store.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3")).unwrap();
    let columns = rows.column_count();
    let mut rows = rows.query([]).unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let cells: Vec<rusqlite::types::Value> =
            (0..columns).map(|at| row.get_unwrap(at)).collect();
        found.push(format!("{cells:?}"));
    }
    found
}
