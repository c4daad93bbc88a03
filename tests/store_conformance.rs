//! The conformance suite on the embedded store, and behind a faulty store without a fault (STO-1).
mod common;

use common::store::Home;
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
fn the_embedded_store_conforms() {
    // STO-1
    conforms(&*Home::new().store());
}

#[test]
fn a_faulty_store_without_faults_is_transparent() {
    // STO-1
    conforms(&Faulty::new(Home::new().store(), []));
}

#[test]
fn the_suite_can_run_twice_on_one_store() {
    let home = Home::new();
    conforms(&*home.store());
    conforms(&*home.store());
}
