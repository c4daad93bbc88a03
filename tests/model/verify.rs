//! What verify brings: the checker, and stores that are broken on purpose.
#[path = "../../verify/broken.rs"]
pub mod broken;
#[path = "../../verify/check.rs"]
pub mod check;
#[expect(dead_code, reason = "the model's ledger is no file")]
#[path = "../../verify/ledger.rs"]
pub mod ledger;
