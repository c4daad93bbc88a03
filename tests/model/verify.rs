//! What verify brings: the checker, and stores that are broken on purpose.
#[expect(dead_code, unused_macros, unused_imports, reason = "verify needs more of it")]
#[path = "../../verify/broken.rs"]
pub mod broken;
#[path = "../../verify/check.rs"]
pub mod check;
#[expect(dead_code, reason = "the model's ledger is no file")]
#[path = "../../verify/ledger.rs"]
pub mod ledger;
