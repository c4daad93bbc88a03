//! What one shard knows of one effect that is at work.
use std::collections::VecDeque;

use super::{Item, Settings, Show};
use crate::drive::host;
use crate::exec::{ChildEnd, CommandLine, NotStarted, OutcomeFile, Output, Sink, Stdin};
use crate::plan::attempt::{Attempt, Came, Order};
use crate::plan::effect::Holder;
use crate::plan::expect::StreamState;
use crate::plan::key::idempotency_key;
use crate::plan::protocol::{Captured, Handle};
use crate::plan::time::Moment;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// Its turn to begin, and then its place among the children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It has not asked for one.
    None,
    /// It waits for one, with a reservation in its hand or without.
    Waits,
    /// It has one.
    Has,
    /// It has begun, and waits for a place.
    WaitsForPlace,
    /// It has a place.
    HasPlace,
    /// It has had one.
    Had,
}

/// One effect.
pub struct Lane {
    /// The line.
    pub item: Item,
    /// Lines of the same key that came later, in their order.
    pub behind: VecDeque<Item>,
    /// Its machine; `None` while it waits for a place with nothing reserved.
    pub attempt: Option<Attempt>,
    /// Its turn.
    pub turn: Turn,
    /// What its child is to be started with, once it has a place.
    pub starts: Option<(Holder, u64, Moment)>,
    /// The append under way reserves.
    pub reserves: bool,
    /// When the last load was asked for.
    pub asked: Moment,
    /// Whose begin the journal has.
    pub journaled: Option<Holder>,
    /// The journal could not be written to, so nothing was started.
    pub unjournaled: bool,
    /// The renewal beside the child.
    pub renewal: Option<Handle>,
    /// Whether the machine waits for the child's end, and until when.
    pub watches: Option<Moment>,
    /// The pause of the machine, of its renewal, and for a place end then.
    pub pause: Option<Moment>,
    /// See `pause`.
    pub renewal_pause: Option<Moment>,
    /// The reservation is given back then, if it still waits.
    pub gives_back: Option<Moment>,
    /// The child's end, waiting for the renewal that is under way.
    pub ended: Option<Came>,
    /// Where the child says what came of it.
    pub said: Option<OutcomeFile>,
    /// How the child ended.
    pub end: Option<ChildEnd>,
    /// What it wrote, to be shown.
    pub shown: Option<(Captured, Captured)>,
    /// Why there was none.
    pub not_started: Option<NotStarted>,
    /// What went wrong on the way.
    pub problems: Vec<String>,
    /// Its outcome is in the spool.
    pub is_kept: bool,
    /// Why its reservation was given back.
    pub given_back: Option<GivenBack>,
}

/// Why a reservation was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenBack {
    /// No place fell free for long: it is begun anew.
    NoPlace,
    /// The batch stops.
    Stopped,
}

impl Lane {
    /// A line, with nothing done about it.
    #[must_use]
    pub fn new(item: Item, behind: VecDeque<Item>) -> Self {
        Self {
            item,
            behind,
            attempt: None,
            turn: Turn::None,
            starts: None,
            reserves: false,
            asked: Moment(0),
            journaled: None,
            unjournaled: false,
            renewal: None,
            watches: None,
            pause: None,
            renewal_pause: None,
            gives_back: None,
            ended: None,
            said: None,
            end: None,
            shown: None,
            not_started: None,
            problems: Vec::new(),
            is_kept: false,
            given_back: None,
        }
    }

    /// The attempt to be made at it.
    #[must_use]
    pub fn order(&self, settings: &Settings) -> Order {
        Order {
            key: self.item.key.clone(),
            request: self.item.request.clone(),
            attempt_id: Uuid::now_v7().to_string(),
            expect: StreamState::Any,
            max_attempts: self.item.max_attempts,
            rebind: false,
            lease: self.item.lease,
            ran_on: settings.ran_on.clone(),
            labels: settings.labels.clone(),
            not_executed: self.item.not_executed.clone(),
            store_timeout: settings.store_timeout,
            outcome_id: host::outcome_id(),
            guess: None,
            dispatch: None,
        }
    }

    /// What is started for it.
    ///
    /// # Errors
    /// Why it cannot be: nothing has run.
    pub fn line(
        &self,
        settings: &Settings,
        (holder, proven_failures, not_after): (Holder, u64, Moment),
        said: &OutcomeFile,
    ) -> Result<CommandLine, String> {
        let key = &self.item.key;
        let id = self.attempt.as_ref().map_or("", |attempt| attempt.attempt_id());
        let variable = |name: &str, value: OsString| (OsString::from(name), value);
        let (stdout, stderr) = match &settings.show {
            Show::Nothing | Show::AtTheEnd => (Sink::Nowhere, Sink::Nowhere),
            Show::Files(dir) => (file(dir, key.as_str(), "out")?, file(dir, key.as_str(), "err")?),
        };
        Ok(CommandLine {
            program: self.item.program.clone(),
            args: self.item.args.clone(),
            env: vec![
                variable("CTRLRUN_KEY", key.as_str().into()),
                variable("CTRLRUN_ATTEMPT", holder.attempt.to_string().into()),
                variable("CTRLRUN_ATTEMPT_ID", id.into()),
                variable(
                    "CTRLRUN_IDEMPOTENCY_KEY",
                    idempotency_key(key, proven_failures).to_string().into(),
                ),
                variable("CTRLRUN_OUTCOME_FILE", said.path().as_os_str().to_owned()),
            ],
            // The batch's own may be its input.
            stdin: Stdin::Null,
            output: Output::Capture { cap: settings.cap(), stdout, stderr },
            timeout: self.item.timeout,
            kill_after: settings.kill_after,
            not_after: Some(Duration::from_micros(not_after.0)),
        })
    }
}

/// The file of a stream of a key: of its newest attempt here.
fn file(dir: &Path, key: &str, stream: &str) -> Result<Sink, String> {
    let path = dir.join(format!("{}.{stream}", file_name(key)));
    let made = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    match made {
        Ok(file) => Ok(Sink::To(OwnedFd::from(file))),
        Err(error) => Err(format!("its output file {} cannot be made: {error}", path.display())),
    }
}

/// A key as the name of a file: every byte but letters, digits and `._-:@=+,` as `%XX`, never hidden;
/// what would be too long for a name ends in its hash.
#[must_use]
pub fn file_name(key: &str) -> String {
    /// A name may have 255 bytes; the rest is for the stream's ending.
    const MOST: usize = 200;
    let mut name = String::new();
    for (at, byte) in key.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"._-:@=+,".contains(&byte);
        if plain && !(at == 0 && byte == b'.') {
            name.push(char::from(byte));
        } else {
            name += &format!("%{byte:02X}");
        }
    }
    if name.len() > MOST {
        let hash = crate::plan::key::Fingerprint::of([&[key.as_bytes()], &[], &[], &[], &[]]);
        let hex: String = hash.0.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        name.truncate(MOST - hex.len() - 1);
        name = format!("{name}~{hex}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_output_file_tells_the_key_and_leads_nowhere_else() {
        // BAT-11
        assert_eq!(file_name("refund:txn_1"), "refund:txn_1");
        assert_eq!(file_name("../../etc/x y"), "%2E.%2F..%2Fetc%2Fx%20y");
        assert_eq!(file_name("."), "%2E");
        let (one, other) = ("k".repeat(511) + "1", "k".repeat(511) + "2");
        assert_ne!(file_name(&one), file_name(&other));
        assert_eq!(file_name(&one).len(), 200);
        assert_ne!(file_name("a/b"), file_name("a%2Fb"));
    }
}
