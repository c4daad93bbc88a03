//! How a doubt is settled, whole: the built binary on real stores, real probes, real terminals. One
//! target, so that it links once and its waits overlap.
//!
//! | file | about |
//! |---|---|
//! | `said` | what a probe's end says, and what it may do |
//! | `asking` | a run that meets AMBIGUOUS and asks |
//! | `declared` | probes that a configuration declares |
//! | `many` | `reconcile` over many keys |
//! | `from` | decisions from a file or a pipe |
//! | `pick` | picking from a list on a terminal |
//! | `watch` | the list that is drawn again and again |
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails"))]
#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../common/run.rs"]
mod at;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/pty.rs"]
mod pty;
#[expect(unused, reason = "some of its helpers are enough here")]
#[path = "../common/real.rs"]
mod real;

mod asking;
mod declared;
mod from;
mod many;
mod pick;
mod said;
mod watch;

use at::Place;

/// Makes `key` AMBIGUOUS at revision 3: its command ended, was reaped, and proved nothing.
fn doubt(at: &Place, key: &str) {
    let script = [at::MARK, "echo some output; echo no answer >&2; exit 28"].concat();
    let ran = common::finish(&mut at.run(key, &[], &script));
    assert_eq!(ran.code, Some(28), "{ran:?}");
    assert_eq!((at.state(key).as_str(), &at.show(key)["revision"]), ("ambiguous", &3.into()));
}

/// `ctrlrun reconcile KEY --reconcile PROBE`.
fn reconcile(at: &Place, key: &str, probe: &str) -> common::Output {
    at.ask(&["reconcile", key, "--reconcile", probe])
}

/// A line of a probe: it was asked. One line, one write: the attempt's number.
const ASKED: &str = r#"echo "$CTRLRUN_ATTEMPT" >>"$PLACE/asked"; "#;

/// How often a probe was asked.
fn asked(at: &Place) -> usize {
    real::lines(at, "asked").len()
}
