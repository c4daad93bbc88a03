//! What verify brings: the checker, stores that are broken on purpose, and draws that a seed repeats.
#[path = "../../verify/broken.rs"]
pub mod broken;
#[path = "../../verify/check.rs"]
pub mod check;
#[expect(dead_code, reason = "this ledger is no file")]
#[path = "../../verify/ledger.rs"]
pub mod ledger;
#[path = "../../verify/seed.rs"]
pub mod seed;
