//! Names: of what was reached, and for a trace.
use ctrlrun::plan::attempt::{NotRecorded, Outcome, Report, Undelivered};
use ctrlrun::plan::effect::{
    Answer, Cause, CommittedBy, Event, FailedBy, Recorded, Refusal, State, Verdict,
};
use ctrlrun::plan::protocol::{Append, Done, End, Found, Input, Step};

use crate::shelf::{How, Rows};

/// Everything that must be reached (PRF-3).
pub const ALL: &[&str] = &[
    "RESERVED",
    "EXECUTING",
    "COMMITTED own word",
    "COMMITTED by a person",
    "COMMITTED by a probe",
    "FAILED own word",
    "FAILED never started",
    "FAILED by a person",
    "FAILED by a probe",
    "AMBIGUOUS lapsed",
    "AMBIGUOUS exit, reaped",
    "AMBIGUOUS exit",
    "AMBIGUOUS signal",
    "AMBIGUOUS timeout",
    "AMBIGUOUS contradiction",
    "AMBIGUOUS late outcome",
    "AMBIGUOUS reopened",
    "a record in doubt",
    "reserved",
    "began",
    "lease_renewed",
    "committed",
    "failed",
    "ambiguated",
    "late_outcome",
    "probed",
    "resolved",
    "reopened",
    "refused: expectation",
    "refused: mismatch",
    "refused: in progress",
    "refused: too late",
    "refused: not ours",
    "refused: ambiguous",
    "refused: max attempts",
    "refused: live",
    "refused: settled otherwise",
    "refused: no such effect",
    "answered: renewed",
    "answered: lost",
    "answered: settled",
    "answered: delivered",
    "answered: kept as late",
    "answered: forgotten",
    "answered: resolved",
    "answered: already so",
    "answered: contended",
    "answered: probe kept",
    "answered: nothing",
    "ended: committed",
    "ended: failed",
    "ended: never started",
    "ended: ambiguous",
    "ended: committed already",
    "ended: refused",
    "ended: could not",
    "ended: unknown",
    "ended: late",
    "ended: forgotten",
    "ended: not recorded",
    "INSERT: landed",
    "INSERT: landed, then moved on: the planner",
    "INSERT: did not land",
    "INSERT: another was there",
    "INSERT: the re-read failed",
    "UPDATE: landed",
    "UPDATE: landed, then moved on: done",
    "UPDATE: landed, then moved on: the planner",
    "UPDATE: did not land",
    "UPDATE: another was there",
    "UPDATE: the re-read failed",
    "second try: landed",
    "second try: 0 rows, and it had landed",
    "second try: 0 rows, and it had landed and moved on",
    "second try: 0 rows, and another was there",
    "second try: 0 rows, and unchanged",
    "second try: not committed",
    "second try: unknown",
    "a write lands after its answer was lost",
    "a start",
    "a start after another",
    "a guess that holds",
    "a guess that does not hold",
    "a write on a row that is known",
    "a key that is given back",
    "a start that comes too late",
    "the child is ended by its holder",
    "delivery: recorded",
    "delivery: late",
    "delivery: forgotten",
    "delivery: forgotten, and it may have happened",
    "delivery: failed",
    "a run that an undelivered outcome stops",
    "a command that could not",
    "a command whose end stays unknown",
];

pub fn state(state: State) -> &'static str {
    match state {
        State::Reserved { .. } => "RESERVED",
        State::Executing { .. } => "EXECUTING",
        State::Committed { by: CommittedBy::OwnWord } => "COMMITTED own word",
        State::Committed { by: CommittedBy::Person } => "COMMITTED by a person",
        State::Committed { by: CommittedBy::Probe } => "COMMITTED by a probe",
        State::Failed { by: FailedBy::OwnWord } => "FAILED own word",
        State::Failed { by: FailedBy::NeverStarted } => "FAILED never started",
        State::Failed { by: FailedBy::Person } => "FAILED by a person",
        State::Failed { by: FailedBy::Probe } => "FAILED by a probe",
        State::Ambiguous { cause, reaped } => match cause {
            Cause::Lapsed => "AMBIGUOUS lapsed",
            Cause::Exit if reaped => "AMBIGUOUS exit, reaped",
            Cause::Exit => "AMBIGUOUS exit",
            Cause::Signal => "AMBIGUOUS signal",
            Cause::Timeout => "AMBIGUOUS timeout",
            Cause::Contradiction => "AMBIGUOUS contradiction",
            Cause::LateOutcome => "AMBIGUOUS late outcome",
            Cause::Reopened => "AMBIGUOUS reopened",
        },
    }
}

pub fn refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Expectation(_) => "refused: expectation",
        Refusal::Mismatch => "refused: mismatch",
        Refusal::InProgress => "refused: in progress",
        Refusal::TooLate => "refused: too late",
        Refusal::NotOurs => "refused: not ours",
        Refusal::Ambiguous => "refused: ambiguous",
        Refusal::MaxAttempts => "refused: max attempts",
        Refusal::Live => "refused: live",
        Refusal::SettledOtherwise => "refused: settled otherwise",
        Refusal::NoSuchEffect => "refused: no such effect",
    }
}

pub fn answer(answer: &Answer) -> &'static str {
    match answer {
        Answer::Granted => "answered: granted",
        Answer::Start => "answered: start",
        Answer::Renewed { .. } => "answered: renewed",
        Answer::Lost => "answered: lost",
        Answer::Settled => "answered: settled",
        Answer::Delivered => "answered: delivered",
        Answer::KeptAsLate => "answered: kept as late",
        Answer::Forgotten => "answered: forgotten",
        Answer::Resolved => "answered: resolved",
        Answer::AlreadySo => "answered: already so",
        Answer::Contended => "answered: contended",
        Answer::ProbeKept => "answered: probe kept",
        Answer::Nothing => "answered: nothing",
        Answer::CommittedAlready => "answered: committed already",
        Answer::Refused(refused) => refusal(refused),
    }
}

/// Whether an answer says that something of this command's is in the history.
pub fn writes(answer: &Answer) -> bool {
    match answer {
        Answer::Granted
        | Answer::Start
        | Answer::Renewed { .. }
        | Answer::Settled
        | Answer::KeptAsLate
        | Answer::Resolved
        | Answer::Contended => true,
        Answer::Lost
        | Answer::Delivered
        | Answer::Forgotten
        | Answer::AlreadySo
        | Answer::ProbeKept
        | Answer::Nothing
        | Answer::CommittedAlready
        | Answer::Refused(_) => false,
    }
}

/// The verdict that a report tells, if its outcome is recorded.
pub fn settled(report: &Report) -> Option<Verdict> {
    match &report.result {
        Outcome::Settled { verdict, .. } => Some(*verdict),
        Outcome::CommittedAlready
        | Outcome::Refused(_)
        | Outcome::CouldNot(_)
        | Outcome::Unknown(_)
        | Outcome::NotRecorded { .. } => None,
    }
}

pub fn end(report: &Report) -> &'static str {
    match &report.result {
        Outcome::Settled { verdict, .. } => match verdict {
            Verdict::Committed => "ended: committed",
            Verdict::Failed => "ended: failed",
            Verdict::NeverStarted => "ended: never started",
            Verdict::Ambiguous { .. } => "ended: ambiguous",
        },
        Outcome::CommittedAlready => "ended: committed already",
        Outcome::Refused(_) => "ended: refused",
        Outcome::CouldNot(_) => "ended: could not",
        Outcome::Unknown(_) => "ended: unknown",
        Outcome::NotRecorded { why, .. } => match why {
            NotRecorded::Late => "ended: late",
            NotRecorded::Forgotten => "ended: forgotten",
            NotRecorded::Store(_) => "ended: not recorded",
        },
    }
}

/// The row of CMT-10 that a re-read finds, or of CMT-11 if it is about a second try.
pub fn settlement(rows: &Rows, append: &Append, tries: u8, how: How) -> &'static str {
    let inserts = append.found.is_none();
    if how != How::Well {
        return if inserts { "INSERT: the re-read failed" } else { "UPDATE: the re-read failed" };
    }
    let first = append.history.first();
    let ours = |at: u64| {
        rows.history.iter().any(|row| row.revision == at && row.write_id == append.next.write_id)
    };
    let landed = rows.record.as_ref() == Some(&append.next);
    let moved_on = !landed && first.is_some_and(|row| ours(row.revision));
    let unchanged = rows.record == append.found && (!inserts || rows.floor == append.attempt_floor);
    let grants = first.is_some_and(|row| {
        matches!(row.event, Event::Reserved(_) | Event::Began(_) | Event::LeaseRenewed(_))
    });
    match (tries > 1, inserts) {
        (true, _) if landed => "second try: 0 rows, and it had landed",
        (true, _) if moved_on => "second try: 0 rows, and it had landed and moved on",
        (true, _) if unchanged => "second try: 0 rows, and unchanged",
        (true, _) => "second try: 0 rows, and another was there",
        (false, true) if landed => "INSERT: landed",
        (false, true) if moved_on => "INSERT: landed, then moved on: the planner",
        (false, true) if unchanged => "INSERT: did not land",
        (false, true) => "INSERT: another was there",
        (false, false) if landed => "UPDATE: landed",
        (false, false) if moved_on && grants => "UPDATE: landed, then moved on: the planner",
        (false, false) if moved_on => "UPDATE: landed, then moved on: done",
        (false, false) if unchanged => "UPDATE: did not land",
        (false, false) => "UPDATE: another was there",
    }
}

/// The end of a second try.
pub fn second_try(step: &Step, input: &Input, tries: u8, doubt: bool) -> Option<&'static str> {
    match (step, input) {
        (Step::Append { .. }, Input::Ended(end)) if tries > 1 && doubt => match end {
            End::Landed => Some("second try: landed"),
            End::NotCommitted(_) => Some("second try: not committed"),
            End::Unknown(_) => Some("second try: unknown"),
            End::Refused => None,
        },
        _ => None,
    }
}

/// What becomes of a file of the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    Recorded,
    Late,
    Forgotten,
    MayHaveHappened,
    Failed,
}

impl Gone {
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded => "delivery: recorded",
            Self::Late => "delivery: late",
            Self::Forgotten => "delivery: forgotten",
            Self::MayHaveHappened => "delivery: forgotten, and it may have happened",
            Self::Failed => "delivery: failed",
        }
    }

    pub fn may_discard(self) -> bool {
        match self {
            Self::Recorded | Self::Late | Self::Forgotten => true,
            Self::MayHaveHappened | Self::Failed => false,
        }
    }
}

/// What a delivery's end means for its file (EXE-25).
pub fn delivery(outcome: &Undelivered, done: &Done) -> Gone {
    match done {
        Done::Answered(answered) => match answered.answer.recorded() {
            Some(Recorded::Ours) => Gone::Recorded,
            Some(Recorded::Late) => Gone::Late,
            Some(Recorded::Forgotten) if outcome.settle.verdict.may_have_happened() => {
                Gone::MayHaveHappened
            }
            Some(Recorded::Forgotten) => Gone::Forgotten,
            None => Gone::Failed,
        },
        Done::CouldNot(_) | Done::Unknown(_) => Gone::Failed,
    }
}

pub fn events(append: &Append) -> String {
    let kinds: Vec<_> = append.history.iter().map(|row| row.event.kind()).collect();
    let from = append.found.as_ref().map_or(0, |record| record.revision);
    format!("[{}] on revision {from}", kinds.join(", "))
}

/// An exchange, for a trace.
pub fn exchange(step: &Step, input: &Input, how: How) -> String {
    let asked = match step {
        Step::Load { .. } => "load".to_owned(),
        Step::Reread { .. } => "re-read".to_owned(),
        Step::Append { append, .. } => format!("append {}", events(append)),
        Step::Draw | Step::Pause(_) | Step::Done(_) => return "pause".to_owned(),
    };
    let came = match input {
        Input::Loaded(Ok(found), _) | Input::Reread(Ok(found)) => row(found),
        Input::Loaded(Err(_), _) | Input::Reread(Err(_)) => "failed".to_owned(),
        Input::Ended(End::Landed) => "landed".to_owned(),
        Input::Ended(End::Refused) => "refused, 0 rows".to_owned(),
        Input::Ended(End::NotCommitted(_)) => "not committed".to_owned(),
        Input::Ended(End::Unknown(_)) => "unknown".to_owned(),
        Input::Start | Input::Drawn(_) | Input::Paused => String::new(),
    };
    let fault = if how == How::Well { String::new() } else { format!(" [fault: {how:?}]") };
    format!("{asked}: {came}{fault}")
}

fn row(found: &Found) -> String {
    found.record.as_ref().map_or_else(
        || "nothing".to_owned(),
        |record| {
            let (state, attempt) = (state(record.state), record.attempt);
            format!("{state}, attempt {attempt}, revision {}", record.revision)
        },
    )
}

pub fn report(report: &Report) -> String {
    match &report.result {
        Outcome::Refused(refused) => refusal(refused).to_owned(),
        Outcome::Settled { .. }
        | Outcome::CommittedAlready
        | Outcome::CouldNot(_)
        | Outcome::Unknown(_)
        | Outcome::NotRecorded { .. } => end(report).to_owned(),
    }
}

pub fn done(done: &Done) -> String {
    match done {
        Done::Answered(answered) => answer(&answered.answer).to_owned(),
        Done::CouldNot(_) => "it could not".to_owned(),
        Done::Unknown(_) => "it stays unknown".to_owned(),
    }
}
