//! Postgres: one store for many hosts.
//!
//! | file | what it does |
//! |---|---|
//! | [`here`] | what a connection string may ask of this process: environment, home, user, files |
//! | [`params`] | the parameters by name, and which source of a value wins |
//! | [`url`] | the grammar of a `postgres://` URL, and how it is shown without its password |
//! | [`service`], [`passfile`] | libpq's two files |
//! | [`conninfo`] | all of it, checked: where to connect, as whom, how |
//! | [`tls`], [`certificate`] | rustls set up as `sslmode` says |
//! | [`line`] | the bytes of one connection, and the command tags that go by |
//! | [`link`] | one connection; every exchange on it has a deadline |
//! | [`connect`] | several hosts, one of them that takes writes |
//! | [`refusal`] | why there is no connection |
//! | `open` | opens, makes and moves a store |
//! | `health` | what must not be used, and which server it is |
//! | `schema` | the schema and its steps |
//! | `store` | the store, and its one connection |
//! | `transaction` | how a transaction of ours begins and ends |
//! | `write`, `group` | one conditional write, and many together |
//! | [`literal`] | values in the text of a statement |
//! | `read`, `list`, `cells`, `said` | what is read |
//! | `upkeep` | walking over all of it, letting go of what is old |
//! | `runs` | workflow runs |
//! | `doctor`, `probe` | what the server is like, and what it does in an experiment |
//! | `error` | what errors mean |
//! | [`faultproxy`] | a proxy that cuts, stalls or rewrites at one message, on purpose |
mod cells;
pub mod certificate;
pub mod connect;
pub mod conninfo;
pub(crate) mod doctor;
mod error;
pub mod faultproxy;
mod group;
mod health;
pub mod here;
pub mod line;
pub mod link;
mod list;
pub mod literal;
mod open;
pub mod params;
pub mod passfile;
mod probe;
mod read;
pub mod refusal;
mod runs;
mod said;
mod schema;
pub mod secret;
pub mod service;
mod store;
pub mod tls;
mod transaction;
mod upkeep;
pub mod url;
mod write;

pub use self::open::open;
pub use self::store::Postgres;
