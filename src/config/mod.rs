//! What `ctrlrun.toml` says (CFG clauses).
//!
//! | file | about |
//! |---|---|
//! | [`effect`] | effects that have a name |
pub mod effect;
