//! Fills a store through the library, so that every state can be looked at: the same steps that a run
//! takes, without a child.
#![allow(dead_code, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]
use std::path::Path;
use std::time::Duration;

use ctrlrun::drive::{Call, handle, host};
use ctrlrun::plan::effect::{
    Begin, Cause, Command, Ending, Holder, Labels, ProbeAnswer, RanOn, Record, Request, Reserve,
    Resolve, Settle, Verdict,
};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::{Done, Kept};
use ctrlrun::store::{Captured, Location, Mode, Options, Store, Stream, open};

/// A store that is being filled.
pub struct Fill {
    store: Box<dyn Store>,
}

impl Fill {
    /// Makes the store at `path`, and its directory.
    pub fn make(path: &Path) -> Self {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        Self::open(path, Mode::Create)
    }

    /// Opens the store at `path`.
    pub fn open(path: &Path, mode: Mode) -> Self {
        let options = Options::new(mode, Duration::from_secs(10));
        let opened = open(&Location::file(path), &options).unwrap();
        Self { store: opened.store }
    }

    /// Performs one command on `key`; returns the record as it stands then.
    pub fn perform(&self, key: &str, command: Command, outputs: Vec<Kept>) -> Option<Record> {
        let call = Call {
            key: Key::new(key).unwrap(),
            command,
            expect: StreamState::Any,
            within: Duration::from_secs(10),
            exchange_max: Duration::from_secs(10),
            outputs,
        };
        match handle(self.store.as_ref(), call) {
            Done::Answered(answered) => answered.record,
            other => panic!("{key}: {other:?}"),
        }
    }

    /// Takes `key` for an attempt.
    pub fn reserve(&self, key: &str, lease: Duration) -> Holder {
        let request = Request {
            fingerprint: Fingerprint([7; 32]),
            program: "./refund.sh".to_owned(),
            arguments: 2,
            command: None,
        };
        let reserve = Reserve {
            request,
            attempt_id: "a-1".to_owned(),
            lease,
            max_attempts: None,
            rebind: false,
            run_id: None,
        };
        let record = self.perform(key, Command::Reserve(reserve), Vec::new());
        let record = record.unwrap();
        Holder { attempt: record.attempt, reservation_id: record.reservation_id }
    }

    /// Takes `key`, and begins.
    pub fn begin(&self, key: &str, lease: Duration) -> Holder {
        let holder = self.reserve(key, Duration::from_secs(30));
        let begin = Begin {
            holder,
            lease,
            ran_on: RanOn {
                host: "web-17".to_owned(),
                pid: 4121,
                user: "deploy".to_owned(),
                directory: "/srv".to_owned(),
            },
            labels: Labels::from([("ticket".to_owned(), "OPS-12".to_owned())]),
        };
        self.perform(key, Command::Begin(begin), Vec::new());
        holder
    }

    /// Says what came of an attempt.
    pub fn settle(
        &self,
        key: &str,
        holder: Holder,
        verdict: Verdict,
        code: i32,
        out: &str,
        err: &str,
    ) {
        let kept = |stream, text: &str| Kept {
            attempt: holder.attempt,
            stream,
            captured: Captured {
                head: text.as_bytes().to_vec(),
                tail: Vec::new(),
                bytes: text.len() as u64,
                whole: true,
            },
        };
        let settle = Settle {
            holder,
            outcome_id: host::outcome_id(),
            verdict,
            ending: Ending {
                exit_code: Some(code),
                signal: None,
                detail: format!("exited {code}"),
            },
        };
        let outputs = vec![kept(Stream::Stdout, out), kept(Stream::Stderr, err)];
        self.perform(key, Command::Settle(settle), outputs);
    }

    /// A whole attempt that happened, at revision 3.
    pub fn committed(&self, key: &str, out: &str) {
        let holder = self.begin(key, Duration::from_secs(300));
        self.settle(key, holder, Verdict::Committed, 0, out, "");
    }

    /// A whole attempt that did not happen.
    pub fn failed(&self, key: &str) {
        let holder = self.begin(key, Duration::from_secs(300));
        self.settle(key, holder, Verdict::Failed, 11, "", "");
    }

    /// A whole attempt of which nobody knows, at revision 3.
    pub fn ambiguous(&self, key: &str) {
        let holder = self.begin(key, Duration::from_secs(300));
        let verdict = Verdict::Ambiguous { cause: Cause::Exit, reaped: true };
        let err = "curl: (28) Operation timed out\n";
        self.settle(key, holder, verdict, 28, "", err);
    }

    /// An attempt that is running.
    pub fn running(&self, key: &str) -> Holder {
        self.begin(key, Duration::from_secs(300))
    }

    /// An attempt that began and whose lease has ended.
    pub fn lapsed(&self, key: &str) -> Holder {
        self.begin(key, Duration::ZERO)
    }

    /// An attempt that never began and whose lease has ended.
    pub fn never_begun(&self, key: &str) -> Holder {
        self.reserve(key, Duration::ZERO)
    }

    /// Says that the holder is alive.
    pub fn renew(&self, key: &str, holder: Holder) {
        let lease = Duration::from_secs(300);
        self.perform(key, Command::Renew { holder, lease }, Vec::new());
    }

    /// A whole attempt whose detail is `note`.
    pub fn noted(&self, key: &str, note: &str) {
        let holder = self.running(key);
        let settle = Settle {
            holder,
            outcome_id: host::outcome_id(),
            verdict: Verdict::Committed,
            ending: Ending { exit_code: Some(0), signal: None, detail: note.to_owned() },
        };
        self.perform(key, Command::Settle(settle), Vec::new());
    }

    /// A whole attempt whose stdout was not kept whole.
    pub fn truncated(&self, key: &str) {
        let holder = self.running(key);
        let settle = Settle {
            holder,
            outcome_id: host::outcome_id(),
            verdict: Verdict::Committed,
            ending: Ending { exit_code: Some(0), signal: None, detail: "exited 0".to_owned() },
        };
        let captured = Captured {
            head: b"begin".to_vec(),
            tail: b"end\n".to_vec(),
            bytes: 5_000,
            whole: false,
        };
        let kept = Kept { attempt: holder.attempt, stream: Stream::Stdout, captured };
        self.perform(key, Command::Settle(settle), vec![kept]);
    }

    /// A person's decision.
    pub fn resolve(&self, key: &str, decision: ProbeAnswer, looked_at: u64) {
        let resolve = Resolve {
            decision,
            by: "oncall@bastion".to_owned(),
            reason: "seen live".to_owned(),
            looked_at,
        };
        self.perform(key, Command::Resolve(resolve), Vec::new());
    }
}
