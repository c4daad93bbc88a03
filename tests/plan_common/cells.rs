//! The records and the commands that meet in the table, each with the words that name it there.
use std::collections::BTreeSet;

use ctrlrun::plan::effect::{
    Cause, Command, CommittedBy, Event, FailedBy, HistoryRow, Holder, OutcomeId, Probe,
    ProbeAnswer, Probed, Record, Reopened, Reserve, Resolve, Resolved, State, Verdict, WriteId,
};
use ctrlrun::plan::protocol::Found;
use ctrlrun::plan::time::Timestamp;

use crate::ask::{LEASE, NOW, begin, outcome_id, settle};
use crate::plan_common::{key, request, write_id};

/// Where every record of the table stands.
const REVISION: u64 = 7;
/// The caller.
pub const OURS: Holder = Holder { attempt: 3, reservation_id: WriteId(uuid::Uuid::from_u128(0x3)) };

/// A record, or none.
#[derive(Debug, Clone)]
pub struct StateCase {
    pub words: BTreeSet<&'static str>,
    pub record: Option<Record>,
    pub maybe_written: Vec<WriteId>,
    began: bool,
}

/// A command, and the event of the history that it asks for.
#[derive(Debug, Clone)]
pub struct CommandCase {
    pub words: BTreeSet<&'static str>,
    pub command: Command,
    asked: Asked,
}

#[derive(Debug, Clone)]
enum Asked {
    Nothing,
    Began,
    Outcome(OutcomeId),
    Event(Event),
}

impl CommandCase {
    /// What a load finds where the state is `state`.
    pub fn found(&self, state: &StateCase) -> Found {
        let record = state.record.clone();
        let event = match &self.asked {
            _ if record.is_none() => None,
            Asked::Nothing => None,
            Asked::Began if !state.began => None,
            Asked::Began => Some(row(4, begun())),
            Asked::Outcome(outcome) => {
                let ending = crate::plan_common::ending("as it was told before");
                let mut told =
                    row(4, Event::Committed(ctrlrun::plan::effect::Committed { ending }));
                told.outcome_id = Some(*outcome);
                Some(told)
            }
            Asked::Event(event) => Some(row(REVISION, event.clone())),
        };
        Found { record, now: NOW, attempt_floor: 2, event }
    }
}

/// That it began.
pub fn begun() -> Event {
    Event::Began(ctrlrun::plan::effect::Began {
        lease_expires_at: NOW.plus(LEASE),
        ran_on: crate::plan_common::ran_on(),
        labels: ctrlrun::plan::effect::Labels::new(),
    })
}

/// `event` at `revision`, about our attempt.
pub fn row(revision: u64, event: Event) -> HistoryRow {
    HistoryRow {
        revision,
        write_id: write_id(0x77),
        outcome_id: None,
        attempt: OURS.attempt,
        recorded_at: NOW,
        event,
    }
}

/// A record of ours in `state`.
pub fn record(state: State) -> Record {
    Record {
        key: key(),
        revision: REVISION,
        write_id: write_id(0x70),
        reservation_id: OURS.reservation_id,
        state,
        first_attempt: 2,
        attempt: OURS.attempt,
        attempt_id: "label".to_owned(),
        request: request(1),
        in_doubt: false,
        doubted: false,
        proven_failures: 0,
        ending: None,
        resolution: None,
        run_id: None,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    }
}

/// Every record there can be, as far as any rule looks.
pub fn states() -> Vec<StateCase> {
    let mut cases = vec![StateCase {
        words: ["NEW"].into(),
        record: None,
        maybe_written: Vec::new(),
        began: false,
    }];
    for (mut words, record, began) in standing() {
        // EFF-4: ours is attempt number and reservation; each of the others is a stranger's.
        let owners = [
            ("ours", 3, OURS.reservation_id),
            ("later", 4, write_id(0x4)),
            ("earlier", 2, write_id(0x2)),
            ("twin", 3, write_id(0x33)),
            ("renumbered", 4, OURS.reservation_id),
        ];
        words.insert(name(record.state));
        for (owner, attempt, reservation_id) in owners {
            let mut words = words.clone();
            words.extend([owner, if owner == "ours" { "ours" } else { "others" }]);
            let record = Record { attempt, reservation_id, ..record.clone() };
            let seen = StateCase {
                words: words.clone(),
                record: Some(record),
                maybe_written: vec![write_id(0x99)],
                began,
            };
            let mut unseen = seen.clone();
            unseen.words.insert("unseen");
            unseen.maybe_written.push(reservation_id);
            cases.extend([seen, unseen]);
        }
    }
    cases
}

fn standing() -> Vec<(BTreeSet<&'static str>, Record, bool)> {
    let mut all: Vec<(BTreeSet<&'static str>, Record, bool)> = Vec::new();
    for doubt in ["clear", "doubt"] {
        let mut add = |words: &[&'static str], state: State, began: bool| {
            let mut record = record(state);
            record.in_doubt = doubt == "doubt";
            record.doubted = record.in_doubt;
            all.push((words.iter().copied().chain([doubt]).collect(), record, began));
        };
        // EFF-5: lapsed from the very instant on.
        for (lease, lease_expires_at) in [("live", Timestamp(NOW.0 + 1)), ("lapsed", NOW)] {
            add(&[lease], State::Reserved { lease_expires_at }, false);
            add(&[lease, "begun"], State::Executing { lease_expires_at }, true);
            add(&[lease, "unbegun"], State::Executing { lease_expires_at }, false);
        }
        for cause in CAUSES {
            let after = match cause {
                Cause::Lapsed => "after-lapse",
                Cause::Exit => "after-exit",
                Cause::Signal => "after-signal",
                Cause::Timeout => "after-timeout",
                Cause::Contradiction => "after-contradiction",
                Cause::LateOutcome => "after-late",
                Cause::Reopened => "after-reopened",
            };
            add(&[after, "reaped"], State::Ambiguous { cause, reaped: true }, false);
            add(&[after, "unreaped"], State::Ambiguous { cause, reaped: false }, false);
        }
        for (by, word) in [
            (CommittedBy::OwnWord, "own-word"),
            (CommittedBy::Person, "by-person"),
            (CommittedBy::Probe, "by-probe"),
        ] {
            add(&[word], State::Committed { by }, true);
        }
        if doubt == "doubt" {
            continue; // A FAILED record is never in doubt (EFF-7).
        }
        for (by, word) in [
            (FailedBy::OwnWord, "own-word"),
            (FailedBy::NeverStarted, "never-started"),
            (FailedBy::Person, "by-person"),
            (FailedBy::Probe, "by-probe"),
        ] {
            add(&[word], State::Failed { by }, true);
        }
    }
    all
}

const CAUSES: [Cause; 7] = [
    Cause::Lapsed,
    Cause::Exit,
    Cause::Signal,
    Cause::Timeout,
    Cause::Contradiction,
    Cause::LateOutcome,
    Cause::Reopened,
];

/// A state's word in the table; a new state has to be named here.
pub fn name(state: State) -> &'static str {
    match state {
        State::Reserved { .. } => "RESERVED",
        State::Executing { .. } => "EXECUTING",
        State::Committed { .. } => "COMMITTED",
        State::Failed { .. } => "FAILED",
        State::Ambiguous { .. } => "AMBIGUOUS",
    }
}

/// Every command there can be, as far as any rule looks.
pub fn commands() -> Vec<CommandCase> {
    let mut cases = vec![
        case(&["Begin"], begin(OURS), Asked::Began),
        case(&["Contend"], Command::Contend, Asked::Nothing),
    ];
    let (holder, lease) = (OURS, LEASE);
    cases.push(case(&["Renew"], Command::Renew { holder, lease }, Asked::Nothing));
    cases.extend(reserves());
    cases.extend(settles());
    cases.extend(resolves());
    cases.extend(reopens());
    cases.extend(probes());
    cases
}

fn case(words: &[&'static str], command: Command, asked: Asked) -> CommandCase {
    CommandCase { words: words.iter().copied().collect(), command, asked }
}

fn reserves() -> Vec<CommandCase> {
    let mut cases = Vec::new();
    for (fingerprint, n) in [("same", 1), ("other", 2)] {
        for (binding, rebind) in [("as-bound", false), ("rebind", true)] {
            // The records of the table are at attempts 2 to 4 of those from 2 on.
            for (ceiling, max_attempts) in
                [("no-ceiling", None), ("below-ceiling", Some(4)), ("at-ceiling", Some(1))]
            {
                let reserve = Reserve {
                    request: request(n),
                    max_attempts,
                    rebind,
                    ..crate::ask::reserve("another label")
                };
                let words = ["Reserve", fingerprint, binding, ceiling];
                cases.push(case(&words, Command::Reserve(reserve), Asked::Nothing));
            }
        }
    }
    cases
}

fn settles() -> Vec<CommandCase> {
    let ambiguous = |cause, reaped| Verdict::Ambiguous { cause, reaped };
    let verdicts: [(&[&'static str], Verdict); 8] = [
        (&["committed"], Verdict::Committed),
        (&["failed"], Verdict::Failed),
        (&["never-started"], Verdict::NeverStarted),
        (&["ambiguous", "exit", "reaped"], ambiguous(Cause::Exit, true)),
        (&["ambiguous", "exit"], ambiguous(Cause::Exit, false)),
        (&["ambiguous", "signal"], ambiguous(Cause::Signal, true)),
        (&["ambiguous", "timeout"], ambiguous(Cause::Timeout, false)),
        (&["ambiguous", "contradiction"], ambiguous(Cause::Contradiction, true)),
    ];
    let outcome = outcome_id(0xa);
    let mut cases = Vec::new();
    for (word, verdict) in verdicts {
        let asked = [
            ("first", Asked::Nothing),
            ("first", Asked::Outcome(outcome_id(0xb))),
            ("delivered", Asked::Outcome(outcome)),
        ];
        for (before, asked) in asked {
            let mut words = vec!["Settle", before];
            words.extend(word);
            cases.push(case(&words, settle(OURS, outcome, verdict), asked));
        }
    }
    cases
}

const PERSON: &str = "oncall@bastion";

fn resolves() -> Vec<CommandCase> {
    let mut cases = Vec::new();
    let decisions = [
        ("committed", ProbeAnswer::Committed, ProbeAnswer::NotExecuted),
        ("not-executed", ProbeAnswer::NotExecuted, ProbeAnswer::Committed),
        ("unknown", ProbeAnswer::Unknown, ProbeAnswer::Committed),
    ];
    for (word, decision, opposite) in decisions {
        // "moved" looked at an earlier revision than the record stands at.
        for (at, looked_at) in [("still", REVISION), ("moved", REVISION - 1)] {
            let resolve = |decision, by: &str| Resolve {
                decision,
                by: by.to_owned(),
                reason: "the ledger shows it".to_owned(),
                looked_at,
            };
            let last = |decision, by: &str, probe, looked_at| {
                let reason = "another reason".to_owned();
                let by = by.to_owned();
                Asked::Event(Event::Resolved(Resolved { decision, by, reason, probe, looked_at }))
            };
            let before = [
                ("first", Asked::Nothing),
                ("repeated", last(decision, PERSON, false, looked_at)),
                // Not repetitions: each differs in one thing.
                ("first", last(opposite, PERSON, false, looked_at)),
                ("first", last(decision, "another@bastion", false, looked_at)),
                ("first", last(decision, PERSON, true, looked_at)),
                ("first", last(decision, PERSON, false, looked_at - 1)),
            ];
            for (before, asked) in before {
                let command = Command::Resolve(resolve(decision, PERSON));
                cases.push(case(&["Resolve", word, at, before], command, asked));
            }
        }
    }
    cases
}

fn reopens() -> Vec<CommandCase> {
    let mut cases = Vec::new();
    for (at, looked_at) in [("still", REVISION), ("moved", REVISION - 1)] {
        let last = |by: &str, looked_at| {
            let (by, reason) = (by.to_owned(), "another reason".to_owned());
            Asked::Event(Event::Reopened(Reopened { by, reason, looked_at }))
        };
        let before = [
            ("first", Asked::Nothing),
            ("repeated", last(PERSON, looked_at)),
            ("first", last("another@bastion", looked_at)),
            ("first", last(PERSON, looked_at - 1)),
        ];
        for (before, asked) in before {
            let (by, reason) = (PERSON.to_owned(), "it was not so".to_owned());
            let command = Command::Reopen { by, reason, looked_at };
            cases.push(case(&["Reopen", at, before], command, asked));
        }
    }
    cases
}

fn probes() -> Vec<CommandCase> {
    let mut cases = Vec::new();
    let answers = [
        ("committed", ProbeAnswer::Committed),
        ("not-executed", ProbeAnswer::NotExecuted),
        ("unknown", ProbeAnswer::Unknown),
    ];
    for (word, answer) in answers {
        for (at, looked_at) in [("still", REVISION), ("moved", REVISION - 1)] {
            for (last_word, reconcile_final) in [("final", true), ("not-final", false)] {
                let by = "reconcile:ledger".to_owned();
                let said = |by: &str| {
                    let by = by.to_owned();
                    Asked::Event(Event::Probed(Probed { answer, by }))
                };
                let before = [
                    ("said-nothing", Asked::Nothing),
                    ("said-last", said(&by)),
                    ("another-said-last", said("reconcile:other")),
                ];
                for (before, asked) in before {
                    let probe = Probe { answer, by: by.clone(), reconcile_final, looked_at };
                    let words = ["Probed", word, at, last_word, before];
                    cases.push(case(&words, Command::Probed(probe), asked));
                }
            }
        }
    }
    cases
}
