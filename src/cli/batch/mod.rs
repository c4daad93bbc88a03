//! `ctrlrun batch`: many effects out of one file.
//!
//! | file | about |
//! |---|---|
//! | [`input`] | the lines of the file, checked |
#[cfg_attr(not(test), expect(dead_code, reason = "read by the batch, which is not there yet"))]
pub mod input;
