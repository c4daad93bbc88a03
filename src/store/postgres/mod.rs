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
//! | [`faultproxy`] | a proxy that cuts, stalls or rewrites at one message, on purpose |
pub mod certificate;
pub mod connect;
pub mod conninfo;
pub mod faultproxy;
pub mod here;
pub mod line;
pub mod link;
pub mod params;
pub mod passfile;
pub mod refusal;
pub mod secret;
pub mod service;
pub mod tls;
pub mod url;
