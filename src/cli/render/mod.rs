//! What is printed, for people and for programs, from the same values.
//!
//! | file | makes |
//! |---|---|
//! | [`text`] | words out of numbers, and safe text out of anybody's |
//! | [`shell`] | command lines that can be typed |
//! | [`next`] | what to type next about a record |
//! | [`state`] | a state in words, and why it is so |
//! | [`object`] | the JSON object of a record (CLI-17) |
//! | [`record`] | one record with its evidence, for a person |
//! | [`table`] | a list of records in columns |
//! | [`event`] | an event of a history, in words and in JSON |
pub mod event;
pub mod next;
pub mod object;
pub mod record;
pub mod shell;
pub mod state;
pub mod table;
pub mod text;
