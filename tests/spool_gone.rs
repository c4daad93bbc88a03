//! A spooled word whose effect the store does not have.
mod common {
    pub mod store;
}

use std::path::PathBuf;

use common::store::{Home, WITHIN};
use ctrlrun::drive::deliver::{Delivery, deliver};
use ctrlrun::drive::spool::Spool;
use ctrlrun::plan::attempt::Undelivered;
use ctrlrun::plan::effect::{Ending, Holder, OutcomeId, Settle, Verdict, WriteId};
use ctrlrun::plan::key::Key;
use uuid::Uuid;

fn spooled(home: &Home, verdict: Verdict) -> (Spool, PathBuf) {
    let store_id = home.store().identity().store_id;
    let dir = home.directory().canonicalize().unwrap().join("spool");
    let spool = Spool::find(&[dir], store_id).unwrap();
    let outcome_id = OutcomeId(Uuid::from_u128(1));
    let settle = Settle {
        holder: Holder { attempt: 1, reservation_id: WriteId(Uuid::from_u128(2)) },
        outcome_id,
        verdict,
        ending: Ending::default(),
    };
    let key = Key::new("k").unwrap();
    spool.keep(&Undelivered { key, settle, outputs: Vec::new() }).unwrap();
    let path = spool.path(outcome_id);
    assert!(path.exists());
    (spool, path)
}

#[test]
fn a_word_that_it_may_have_happened_stays_and_stands_in_the_way_of_its_key() {
    // EXE-25: dropped, it would let a restored store run the effect a second time.
    let home = Home::new();
    let (spool, path) = spooled(&home, Verdict::Committed);
    for _ in 0..2 {
        let delivered = deliver(&*home.store(), &spool, WITHIN, WITHIN);
        let [Delivery::Failed(key, why)] = delivered.as_slice() else { panic!("{delivered:?}") };
        assert_eq!(key.as_str(), "k");
        assert!(why.message.contains(path.to_str().unwrap()), "{}", why.message);
        assert!(path.exists());
    }
}

#[test]
fn a_word_that_nothing_happened_is_dropped() {
    let home = Home::new();
    let (spool, path) = spooled(&home, Verdict::NeverStarted);
    let delivered = deliver(&*home.store(), &spool, WITHIN, WITHIN);
    assert!(matches!(delivered.as_slice(), [Delivery::Forgotten(_)]), "{delivered:?}");
    assert!(!path.exists());
}
