//! Every command against every record: the tables of spec/effects.md, cell by cell (EFF-10 to
//! EFF-21).
//!
//! [`TABLE`] is read as the pages are: the upper row applies, `-` means that nothing is written.
//! A pattern is words that must all hold; `|` stands between alternatives. No row matches by
//! leaving the state or the command open, so that a state or a command nobody thought of matches
//! nothing and fails.
mod plan_common;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use ask::{LEASE, NOW};
use ctrlrun::plan::effect::{
    Answer, Cause, Command, Event, FailedBy, HistoryRow, LeaseRenewed, ProbeAnswer, Record,
    Refusal, Reserve, State, decide, evolve,
};
use ctrlrun::plan::protocol::Found;
use plan_common::key;

#[path = "plan_common/ask.rs"]
mod ask;
#[path = "plan_common/cells.rs"]
mod cells;
use cells::{CommandCase, StateCase, commands, name, states};

/// (found, command, writes, answer)
type Row = (&'static str, &'static str, &'static str, &'static str);

const EXISTS: &str = "RESERVED | EXECUTING | COMMITTED | FAILED | AMBIGUOUS";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // EFF-10: Reserve, where no outcome stands
    ("RESERVED unseen",                                   "Reserve",                  "-",                     "granted"),
    ("NEW",                                               "Reserve",                  "reserved",              "granted"),
    ("RESERVED live | EXECUTING live",                    "Reserve other",            "-",                     "65"),
    ("RESERVED live | EXECUTING live",                    "Reserve same",             "-",                     "75 in progress"),
    ("RESERVED lapsed | EXECUTING lapsed",                "Reserve other",            "ambiguated: lapsed",    "65"),
    ("RESERVED lapsed | EXECUTING lapsed",                "Reserve same",             "ambiguated: lapsed",    "76"),
    // EFF-11: Reserve, where an outcome stands
    ("COMMITTED",                                         "Reserve other",            "-",                     "65"),
    ("COMMITTED",                                         "Reserve same",             "-",                     "committed already"),
    ("AMBIGUOUS",                                         "Reserve other",            "-",                     "65"),
    ("AMBIGUOUS",                                         "Reserve same",             "-",                     "76"),
    ("FAILED own-word | FAILED never-started",            "Reserve at-ceiling",       "-",                     "72"),
    ("FAILED own-word | FAILED never-started",            "Reserve",                  "reserved",              "granted"),
    ("FAILED by-person | FAILED by-probe",                "Reserve other as-bound",   "-",                     "65"),
    ("FAILED by-person | FAILED by-probe",                "Reserve at-ceiling",       "-",                     "72"),
    ("FAILED by-person | FAILED by-probe",                "Reserve",                  "reserved",              "granted"),
    // EFF-13: Begin
    ("RESERVED ours live clear",                          "Begin",                    "began",                 "start"),
    ("EXECUTING ours begun live clear",                   "Begin",                    "-",                     "start"),
    ("RESERVED ours doubt",                               "Begin",                    "ambiguated: late outcome", "76"),
    ("RESERVED ours lapsed clear",                        "Begin",                    "failed: never started", "75 too late"),
    ("EXECUTING ours lapsed clear",                       "Begin",                    "failed: never started", "75 too late"),
    ("EXECUTING ours unbegun live clear",                 "Begin",                    "failed: never started", "75 not ours"),
    ("EXECUTING ours lapsed doubt",                       "Begin",                    "ambiguated: late outcome", "75 too late"),
    ("EXECUTING ours live doubt",                         "Begin",                    "ambiguated: late outcome", "75 not ours"),
    ("AMBIGUOUS",                                         "Begin",                    "-",                     "76"),
    ("NEW | RESERVED others | EXECUTING others",          "Begin",                    "-",                     "75 not ours"),
    ("COMMITTED | FAILED",                                "Begin",                    "-",                     "75 not ours"),
    // EFF-14: Renew
    ("EXECUTING ours",                                    "Renew",                    "lease_renewed",         "renewed"),
    ("EXECUTING others | RESERVED | NEW",                 "Renew",                    "-",                     "lost"),
    ("COMMITTED | FAILED | AMBIGUOUS",                    "Renew",                    "-",                     "lost"),
    // EFF-15: what was delivered is delivered
    ("NEW",                                               "Settle",                   "-",                     "forgotten"),
    (EXISTS,                                              "Settle delivered",         "-",                     "delivered"),
    // EFF-16: Settle on a record that is ours
    ("EXECUTING ours | RESERVED ours",                    "Settle committed",         "committed",             "settled"),
    ("EXECUTING ours doubt | RESERVED ours doubt",        "Settle failed | Settle never-started", "ambiguated: late outcome", "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle failed",            "failed: own word",      "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle never-started",     "failed: never started", "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle ambiguous exit reaped", "ambiguated: exit, reaped", "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle ambiguous exit",    "ambiguated: exit",      "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle ambiguous signal",  "ambiguated: signal, reaped", "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle ambiguous timeout", "ambiguated: timeout",   "settled"),
    ("EXECUTING ours | RESERVED ours",                    "Settle ambiguous contradiction", "ambiguated: contradiction, reaped", "settled"),
    // EFF-17: Settle on any other record
    ("FAILED",                                            "Settle failed | Settle never-started", "late_outcome", "kept as late"),
    ("FAILED",                                            "Settle committed | Settle ambiguous", "late_outcome in doubt, ambiguated: late outcome", "kept as late"),
    ("AMBIGUOUS | RESERVED others | EXECUTING others",    "Settle failed | Settle never-started", "late_outcome", "kept as late"),
    ("AMBIGUOUS | RESERVED others | EXECUTING others",    "Settle committed | Settle ambiguous", "late_outcome in doubt", "kept as late"),
    ("COMMITTED",                                         "Settle",                   "late_outcome",          "kept as late"),
    // EFF-18: Resolve
    ("NEW",                                               "Resolve",                  "-",                     "66"),
    (EXISTS,                                              "Resolve unknown",          "-",                     "nothing"),
    (EXISTS,                                              "Resolve repeated",         "-",                     "already so"),
    (EXISTS,                                              "Resolve moved",            "-",                     "79"),
    ("AMBIGUOUS",                                         "Resolve committed",        "resolved: committed by a person", "resolved"),
    ("AMBIGUOUS",                                         "Resolve not-executed",     "resolved: not executed by a person", "resolved"),
    ("RESERVED lapsed | EXECUTING lapsed",                "Resolve committed",        "ambiguated: lapsed, resolved: committed by a person", "resolved"),
    ("RESERVED lapsed | EXECUTING lapsed",                "Resolve not-executed",     "ambiguated: lapsed, resolved: not executed by a person", "resolved"),
    ("RESERVED live | EXECUTING live",                    "Resolve",                  "-",                     "75 live"),
    ("COMMITTED | FAILED",                                "Resolve",                  "-",                     "73"),
    // EFF-19: Reopen
    ("NEW",                                               "Reopen",                   "-",                     "66"),
    (EXISTS,                                              "Reopen repeated",          "-",                     "already so"),
    (EXISTS,                                              "Reopen moved",             "-",                     "79"),
    ("COMMITTED | FAILED",                                "Reopen",                   "reopened",              "resolved"),
    ("AMBIGUOUS",                                         "Reopen",                   "-",                     "already so"),
    ("RESERVED lapsed | EXECUTING lapsed",                "Reopen",                   "ambiguated: lapsed",    "resolved"),
    ("RESERVED live | EXECUTING live",                    "Reopen",                   "-",                     "75 live"),
    // EFF-20: Contend
    ("RESERVED lapsed | EXECUTING lapsed",                "Contend",                  "ambiguated: lapsed",    "contended"),
    ("RESERVED live | EXECUTING live | NEW",              "Contend",                  "-",                     "nothing"),
    ("COMMITTED | FAILED | AMBIGUOUS",                    "Contend",                  "-",                     "nothing"),
    // EFF-20: a probe answered
    ("NEW | RESERVED | EXECUTING | COMMITTED | FAILED",   "Probed",                   "-",                     "nothing"),
    ("AMBIGUOUS",                                         "Probed moved | Probed unknown", "-",                "nothing"),
    ("AMBIGUOUS",                                         "Probed committed",         "probed: committed, resolved: committed by a probe", "resolved"),
    ("AMBIGUOUS doubt | AMBIGUOUS after-late | AMBIGUOUS after-reopened", "Probed not-executed said-last", "-", "probe kept"),
    ("AMBIGUOUS doubt | AMBIGUOUS after-late | AMBIGUOUS after-reopened", "Probed not-executed", "probed: not executed", "probe kept"),
    ("AMBIGUOUS reaped",                                  "Probed not-executed",      "probed: not executed, resolved: not executed by a probe", "resolved"),
    ("AMBIGUOUS",                                         "Probed not-executed final", "probed: not executed, resolved: not executed by a probe", "resolved"),
    ("AMBIGUOUS",                                         "Probed not-executed said-last", "-",                "probe kept"),
    ("AMBIGUOUS",                                         "Probed not-executed",      "probed: not executed",  "probe kept"),
];

/// The alternatives of a pattern, each the words that must all hold.
type Pattern = Vec<Vec<&'static str>>;

static PATTERNS: LazyLock<Vec<(Pattern, Pattern)>> = LazyLock::new(|| {
    let read = |pattern: &'static str| -> Pattern {
        let words = |all: &'static str| all.split_whitespace().collect();
        pattern.split('|').map(words).collect()
    };
    let read = |(found, command, _, _): &Row| (read(found), read(command));
    TABLE.iter().map(read).collect()
});

fn matches(pattern: &Pattern, words: &BTreeSet<&'static str>) -> bool {
    pattern.iter().any(|all| all.iter().all(|word| words.contains(word)))
}

fn row_of(state: &StateCase, command: &CommandCase) -> Option<usize> {
    PATTERNS
        .iter()
        .position(|(found, asked)| matches(asked, &command.words) && matches(found, &state.words))
}

/// Hands every state with every command to `each`.
fn every_cell(mut each: impl FnMut(&StateCase, &CommandCase)) {
    let commands = commands();
    for state in states() {
        for command in &commands {
            each(&state, command);
        }
    }
}

#[test]
fn every_cell_writes_and_answers_what_its_row_says() {
    let mut wrong = Vec::new();
    every_cell(|state, command| {
        let Some(row) = row_of(state, command) else {
            return;
        };
        let (_, _, writes, answer) = TABLE[row];
        let found = command.found(state);
        let decision = decide(&found, &command.command, &state.maybe_written);
        let written: Vec<String> =
            decision.events.iter().map(|event| told(event, &found, &command.command)).collect();
        let written = if written.is_empty() { "-".to_owned() } else { written.join(", ") };
        let answered = answer_told(&decision.answer, &found);
        if (written.as_str(), answered) != (writes, answer) {
            wrong.push(format!(
                "{:?} x {:?}: wrote [{written}], answered {answered}; row {row}: [{writes}], {answer}",
                state.words, command.words
            ));
        }
    });
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_state_meets_every_command_in_some_row_and_every_row_is_met() {
    let mut met = BTreeSet::new();
    every_cell(|state, command| {
        let row = row_of(state, command);
        assert!(row.is_some(), "no row for {state:?} x {command:?}");
        met.extend(row);
    });
    let idle: Vec<&Row> =
        (0..TABLE.len()).filter(|row| !met.contains(row)).map(|row| &TABLE[row]).collect();
    assert!(idle.is_empty(), "never reached: {idle:#?}");
    for (found, command, _, _) in TABLE {
        for all in found.split('|').chain(command.split('|')) {
            assert!(
                all.split_whitespace()
                    .any(|word| word.chars().next().is_some_and(char::is_uppercase)),
                "{all:?} names no state or command"
            );
        }
    }
}

#[test]
fn the_fixtures_are_of_every_state_and_every_command() {
    let states: BTreeSet<&str> = states()
        .iter()
        .map(|case| case.record.as_ref().map_or("NEW", |record| name(record.state)))
        .collect();
    let every = ["AMBIGUOUS", "COMMITTED", "EXECUTING", "FAILED", "NEW", "RESERVED"];
    assert_eq!(states, every.into());
    let commands: BTreeSet<&str> =
        commands().iter().map(|case| command_name(&case.command)).collect();
    let every = ["Begin", "Contend", "Probed", "Renew", "Reopen", "Reserve", "Resolve", "Settle"];
    assert_eq!(commands, every.into());
}

#[test]
fn whatever_a_cell_writes_keeps_what_holds_of_every_record() {
    every_cell(|state, command| {
        let found = command.found(state);
        let decision = decide(&found, &command.command, &state.maybe_written);
        let before = found.record.clone();
        let mut record = before.clone();
        for event in decision.events {
            let row = cells::row(record.as_ref().map_or(1, |r| r.revision + 1), event);
            record = Some(evolve(&key(), record, &row).expect("a fold goes on"));
        }
        let (Some(after), cell) = (record, (&state.words, &command.words)) else {
            return;
        };
        let failed = matches!(after.state, State::Failed { .. });
        assert!(!(failed && after.in_doubt), "EFF-7: {cell:?}");
        let Some(before) = before else { return };
        assert!(after.doubted >= before.doubted, "EFF-8: {cell:?}");
        if before.in_doubt && !after.in_doubt {
            let person = matches!(command.command, Command::Resolve(_));
            assert!(person, "EFF-7, only a person: {cell:?}");
        }
        let starts = matches!(decision.answer, Answer::Start);
        assert!(!starts || (!before.in_doubt && !before.is_lapsed(NOW)), "EFF-13: {cell:?}");
        let ambiguous = matches!(before.state, State::Ambiguous { .. });
        let moved = name(after.state) != "AMBIGUOUS";
        let by = matches!(command.command, Command::Resolve(_) | Command::Probed(_));
        assert!(!(ambiguous && moved) || by, "only a person or a probe: {cell:?}");
        assert_eq!(before.first_attempt, after.first_attempt, "EFF-2: {cell:?}");
    });
}

#[test]
fn numbers_go_on_from_the_floor_or_the_record_and_the_ceiling_counts_from_the_first() {
    // EFF-6
    let at = |record: Option<Record>, attempt_floor: u64, max_attempts: Option<u64>| {
        let found = Found { record, now: NOW, attempt_floor, event: None };
        let reserve = Reserve { max_attempts, ..ask::reserve("label") };
        let decision = decide(&found, &Command::Reserve(reserve), &[]);
        match decision.events.as_slice() {
            [Event::Reserved(event)] => Some(event.attempt),
            _ => None,
        }
    };
    assert_eq!(at(None, 0, Some(1)), Some(1));
    assert_eq!(at(None, 41, Some(1)), Some(42));
    // Attempts 40 to 43 since the key was forgotten: four are made, whatever the floor is now.
    let failed = Record {
        first_attempt: 40,
        attempt: 43,
        ..cells::record(State::Failed { by: FailedBy::OwnWord })
    };
    assert_eq!(at(Some(failed.clone()), 99, Some(5)), Some(44));
    assert_eq!(at(Some(failed.clone()), 99, None), Some(44));
    assert_eq!(at(Some(failed), 99, Some(4)), None);
}

#[test]
fn only_a_begin_of_the_very_attempt_lets_its_child_start() {
    // EFF-13
    let executing = State::Executing { lease_expires_at: NOW.plus(LEASE) };
    let answer = |event| {
        let record = Some(cells::record(executing));
        let found = Found { record, now: NOW, attempt_floor: 0, event: Some(event) };
        decide(&found, &ask::begin(cells::OURS), &[]).answer
    };
    let begun = || cells::row(4, cells::begun());
    assert_eq!(answer(begun()), Answer::Start);
    let earlier = HistoryRow { attempt: cells::OURS.attempt - 1, ..begun() };
    assert_eq!(answer(earlier), Answer::Refused(Refusal::NotOurs));
    let renewed = LeaseRenewed { lease_expires_at: NOW.plus(LEASE) };
    let other = cells::row(4, Event::LeaseRenewed(renewed));
    assert_eq!(answer(other), Answer::Refused(Refusal::NotOurs));
}

fn command_name(command: &Command) -> &'static str {
    match command {
        Command::Reserve(_) => "Reserve",
        Command::Begin(_) => "Begin",
        Command::Renew { .. } => "Renew",
        Command::Settle(_) => "Settle",
        Command::Resolve(_) => "Resolve",
        Command::Reopen { .. } => "Reopen",
        Command::Contend => "Contend",
        Command::Probed(_) => "Probed",
    }
}

/// The event in the words of the table, its other facts checked against the command.
fn told(event: &Event, found: &Found, command: &Command) -> String {
    let until = found.now.plus(LEASE);
    match (event, command) {
        (Event::Reserved(event), Command::Reserve(asked)) => {
            let last = found.record.as_ref().map(|record| record.attempt);
            assert_eq!(event.attempt, last.unwrap_or(found.attempt_floor) + 1);
            assert_eq!((event.lease_expires_at, &event.request), (until, &asked.request));
            assert_eq!(event.attempt_id, asked.attempt_id);
            "reserved".to_owned()
        }
        (Event::Began(event), Command::Begin(asked)) => {
            assert_eq!((event.lease_expires_at, &event.ran_on), (until, &asked.ran_on));
            "began".to_owned()
        }
        (Event::LeaseRenewed(event), Command::Renew { .. }) => {
            assert_eq!(event.lease_expires_at, until);
            "lease_renewed".to_owned()
        }
        (Event::Committed(event), Command::Settle(asked)) => {
            assert_eq!(event.ending, asked.ending);
            "committed".to_owned()
        }
        (Event::Failed(event), _) => {
            assert_eq!(event.ending.exit_code, None);
            match event.by {
                FailedBy::OwnWord => "failed: own word",
                FailedBy::NeverStarted => "failed: never started",
                FailedBy::Person | FailedBy::Probe => "failed: by nobody's word",
            }
            .to_owned()
        }
        (Event::Ambiguated(event), _) => {
            let cause = match event.cause {
                Cause::Lapsed => "lapsed",
                Cause::Exit => "exit",
                Cause::Signal => "signal",
                Cause::Timeout => "timeout",
                Cause::Contradiction => "contradiction",
                Cause::LateOutcome => "late outcome",
                Cause::Reopened => "reopened",
            };
            let reaped = if event.reaped { ", reaped" } else { "" };
            format!("ambiguated: {cause}{reaped}")
        }
        (Event::LateOutcome(event), Command::Settle(asked)) => {
            let said = (event.attempt, event.reservation_id, event.word, &event.ending);
            let holder = asked.holder;
            assert_eq!(said, (holder.attempt, holder.reservation_id, asked.verdict, &asked.ending));
            let doubt = if event.doubt { " in doubt" } else { "" };
            format!("late_outcome{doubt}")
        }
        (Event::Probed(event), Command::Probed(asked)) => {
            assert_eq!(event.by, asked.by);
            format!("probed: {}", decision_told(event.answer))
        }
        (Event::Resolved(event), _) => {
            let by = if event.probe { "probe" } else { "person" };
            assert_eq!(Some(event.looked_at), found.revision());
            format!("resolved: {} by a {by}", decision_told(event.decision))
        }
        (Event::Reopened(event), Command::Reopen { by, reason, .. }) => {
            assert_eq!((&event.by, &event.reason), (by, reason));
            "reopened".to_owned()
        }
        (event, _) => format!("{} by a stranger", event.kind()),
    }
}

fn decision_told(decision: ProbeAnswer) -> &'static str {
    match decision {
        ProbeAnswer::Committed => "committed",
        ProbeAnswer::NotExecuted => "not executed",
        ProbeAnswer::Unknown => "unknown",
    }
}

fn answer_told(answer: &Answer, found: &Found) -> &'static str {
    match answer {
        Answer::Granted => "granted",
        Answer::Start => "start",
        Answer::Renewed { lease_expires_at } => {
            assert_eq!(*lease_expires_at, found.now.plus(LEASE));
            "renewed"
        }
        Answer::Lost => "lost",
        Answer::Settled => "settled",
        Answer::Delivered => "delivered",
        Answer::KeptAsLate => "kept as late",
        Answer::Forgotten => "forgotten",
        Answer::Resolved => "resolved",
        Answer::AlreadySo => "already so",
        Answer::Contended => "contended",
        Answer::ProbeKept => "probe kept",
        Answer::Nothing => "nothing",
        Answer::CommittedAlready => "committed already",
        Answer::Refused(refusal) => match refusal {
            Refusal::Expectation(conflict) => {
                assert_eq!(conflict.actual, found.revision());
                "79"
            }
            Refusal::Mismatch => "65",
            Refusal::InProgress => "75 in progress",
            Refusal::TooLate => "75 too late",
            Refusal::NotOurs => "75 not ours",
            Refusal::Ambiguous => "76",
            Refusal::MaxAttempts => "72",
            Refusal::Live => "75 live",
            Refusal::SettledOtherwise => "73",
            Refusal::NoSuchEffect => "66",
        },
    }
}
