//! The conformance suite on Postgres (STO-1): plain, behind a faulty store without a fault, and through
//! a pooler in transaction mode.
mod common;

use common::pgbouncer::PgBouncer;
use common::pgstore::store_at;
use common::postgres::{binaries, server, server_with};
use ctrlrun::store::Store;
use ctrlrun::store::conformance::{runs, suite};
use ctrlrun::store::faulty::Faulty;

fn conforms(store: &dyn Store) {
    let wrong: Vec<String> = suite()
        .into_iter()
        .chain(runs::suite())
        .chain(runs::forgetting())
        .filter_map(|(name, check)| check(store).err().map(|why| format!("{name}: {why}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_store_on_postgres_conforms() {
    // STO-1, PGS-1
    for bin in binaries() {
        let options = common::postgres::Options { bin: Some(bin), ..Default::default() };
        let Some(server) = server_with(&options) else { return };
        let store = store_at(&server.url("postgres"));
        conforms(&*store);
        conforms(&*store);
    }
    let Some(server) = server() else { return };
    conforms(&Faulty::new(store_at(&server.url("postgres")), []));
}

#[test]
fn a_store_in_a_schema_with_an_odd_name_conforms() {
    // PGS-8
    let Some(server) = server() else { return };
    let store = store_at(&format!("{}&schema=it%27s%20%22mine%22", server.url("postgres")));
    conforms(&*store);
}

#[test]
fn a_store_behind_a_pooler_in_transaction_mode_conforms() {
    // PGS-6, case 38
    let Some(server) = server() else { return };
    let Some(pooler) = PgBouncer::start(&server, 1) else { return };
    conforms(&*store_at(&pooler.url("postgres")));
}
