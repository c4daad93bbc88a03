//! What tests share.
pub mod store;
