//! ctrlrun: effects that happen once.

pub mod exec;
