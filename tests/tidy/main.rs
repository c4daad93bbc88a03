//! The house rules, read from the source tree: what no compiler and no lint checks.
//!
//! | file | rule |
//! |---|---|
//! | `imports` | imports go one way, `plan` has no clock and no I/O, `unsafe` stays in `exec` |
//! | `mounted` | every Rust file is compiled, and every test target runs |
//! | `clauses` | the specification's clauses and those who cite them |
//! | `words` | what may not stand in a file, and how long a file may be |
//! | `licences` | what the dependencies ask of us |
//!
//! Each rule is a function from sources to complaints, so that its own tests can show it red.
#[cfg(test)]
mod clauses;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod lexer;
#[cfg(test)]
mod licences;
#[cfg(test)]
mod mounted;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod words;
