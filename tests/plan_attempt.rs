//! The machine of one attempt, stepped by hand: what it does next after everything that can come.
use std::time::Duration;

use ctrlrun::plan::attempt::{Attempt, Came, Do, NotRecorded, Order, Outcome, Report, Undelivered};
use ctrlrun::plan::effect::{
    Event, FailedBy, Holder, Labels, OutcomeId, RanOn, Record, Refusal, Request, State, Verdict,
    WriteId,
};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::{
    Append, Ask, Captured, CouldNot, Done, End, Found, Handle, Input, Reason, Step, Stream,
};
use ctrlrun::plan::time::{Moment, Timestamp};
use ctrlrun::plan::verdict::{ChildEnd, Exit, Left, NotExecuted, Said};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(60);
const OUTCOME: OutcomeId = OutcomeId(Uuid::from_u128(77));

/// A store of one effect, in memory, with a clock that the test moves and faults that it sets.
struct World {
    machine: Attempt,
    record: Option<Record>,
    history: Vec<ctrlrun::plan::effect::HistoryRow>,
    outputs: Vec<(u64, Stream)>,
    at: u64,
    draws: u128,
    /// Ends of the next appends, before they are done properly again.
    faults: Vec<Fault>,
    rereads_fail: bool,
    /// What was done, in order.
    log: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    NotCommitted,
    UnknownLanded,
    UnknownNotLanded,
}

fn could_not() -> CouldNot {
    CouldNot { reason: Reason::Unreachable, message: "gone".to_owned(), hint: None }
}

fn order() -> Order {
    Order {
        key: Key::new("k").unwrap(),
        request: Request {
            fingerprint: Fingerprint([1; 32]),
            program: "true".to_owned(),
            arguments: 0,
            command: None,
        },
        attempt_id: "a".to_owned(),
        expect: StreamState::Any,
        max_attempts: None,
        rebind: false,
        lease: LEASE,
        ran_on: RanOn {
            host: "h".to_owned(),
            pid: 1,
            user: "u".to_owned(),
            directory: "/".to_owned(),
        },
        labels: Labels::new(),
        not_executed: NotExecuted::parse("6").unwrap(),
        store_timeout: Duration::from_secs(10),
        dispatch: None,
        outcome_id: OUTCOME,
        guess: None,
    }
}

impl World {
    fn new() -> Self {
        Self {
            machine: Attempt::new(order(), Moment(0)),
            record: None,
            history: Vec::new(),
            outputs: Vec::new(),
            at: 0,
            draws: 0,
            faults: Vec::new(),
            rereads_fail: false,
            log: Vec::new(),
        }
    }

    fn with_faults(faults: &[Fault]) -> Self {
        let mut world = Self::new();
        world.faults = faults.iter().rev().copied().collect();
        world
    }

    fn found(&self, ask: Ask) -> Found {
        let event = match ask {
            Ask::Nothing => None,
            Ask::Outcome(id) => self.history.iter().find(|row| row.outcome_id == Some(id)),
            Ask::Began(attempt) => self
                .history
                .iter()
                .find(|row| matches!(row.event, Event::Began(_)) && row.attempt == attempt),
            Ask::Revision(revision) => self.history.iter().find(|row| row.revision == revision),
            Ask::Last => self.history.last(),
            Ask::LastChange => self.history.iter().rfind(|row| {
                !matches!(
                    row.event,
                    Event::LateOutcome(_) | Event::Probed(_) | Event::LeaseRenewed(_)
                )
            }),
        };
        let now = Timestamp(i64::try_from(self.at).unwrap());
        Found { record: self.record.clone(), now, attempt_floor: 0, event: event.cloned() }
    }

    fn write(&mut self, append: &Append) -> bool {
        let same = match (&self.record, &append.found) {
            (None, None) => true,
            (Some(stored), Some(found)) => {
                stored.revision == found.revision && stored.write_id == found.write_id
            }
            _ => false,
        };
        if same {
            self.record = Some(append.next.clone());
            self.history.extend(append.history.iter().cloned());
            self.outputs.extend(append.outputs.iter().map(|kept| (kept.attempt, kept.stream)));
            let kinds: Vec<&str> = append.history.iter().map(|row| row.event.kind()).collect();
            self.log.push(kinds.join("+"));
        }
        same
    }

    fn store(&mut self, step: Step) -> Input {
        match step {
            Step::Load { ask, .. } => {
                self.draws += 1;
                Input::Loaded(Ok(self.found(ask)), WriteId(Uuid::from_u128(self.draws)))
            }
            Step::Draw => {
                self.draws += 1;
                Input::Drawn(WriteId(Uuid::from_u128(self.draws)))
            }
            Step::Append { append, .. } => {
                let end = match self.faults.pop().unwrap_or(Fault::None) {
                    Fault::None if self.write(&append) => End::Landed,
                    Fault::None => End::Refused,
                    Fault::NotCommitted => End::NotCommitted(could_not()),
                    Fault::UnknownLanded => {
                        self.write(&append);
                        End::Unknown(could_not())
                    }
                    Fault::UnknownNotLanded => End::Unknown(could_not()),
                };
                Input::Ended(end)
            }
            Step::Reread { .. } if self.rereads_fail => Input::Reread(Err(could_not())),
            Step::Reread { ask, .. } => Input::Reread(Ok(self.found(ask))),
            Step::Pause(_) => Input::Paused,
            Step::Done(_) => panic!("the last step of a write is not handed out"),
        }
    }

    /// Steps until something other than a store step comes.
    fn step(&mut self, came: Came) -> Do {
        let mut next = self.machine.step(came, Moment(self.at));
        loop {
            match next {
                Do::Store(step) => {
                    let input = self.store(step);
                    next = self.machine.step(Came::Store(Box::new(input)), Moment(self.at));
                }
                other => return other,
            }
        }
    }

    fn started(faults: &[Fault]) -> Self {
        let mut world = Self::with_faults(faults);
        assert!(matches!(world.step(Came::Call), Do::Start { .. }));
        assert!(matches!(world.step(Came::Started), Do::Watch { .. }));
        world
    }

    fn drive(&mut self, write: &mut Handle) -> Done {
        let mut input = Input::Start;
        loop {
            match write.step(input, Moment(self.at)) {
                Step::Done(done) => return done,
                step => input = self.store(step),
            }
        }
    }

    /// Lets another process write, as one that found the newest row.
    fn other(&mut self, event: Event) {
        let found = self.found(Ask::Nothing);
        self.draws += 1;
        let row = ctrlrun::plan::effect::HistoryRow {
            revision: found.revision().unwrap() + 1,
            write_id: WriteId(Uuid::from_u128(self.draws)),
            outcome_id: None,
            attempt: found.record.as_ref().unwrap().attempt,
            recorded_at: found.now,
            event,
        };
        let key = Key::new("k").unwrap();
        self.record = Some(ctrlrun::plan::effect::evolve(&key, found.record, &row).unwrap());
        self.history.push(row);
    }
}

fn exited(code: i32) -> Came {
    let end = ChildEnd {
        exit: Exit::Code(code),
        timed_out: false,
        ended_by_holder: false,
        left: Left::Nothing,
        said: Said::nothing(),
    };
    let stdout = Captured { head: b"hi".to_vec(), tail: Vec::new(), bytes: 2, whole: true };
    Came::Ended {
        end,
        stdout: Some(stdout),
        stderr: Some(Captured { whole: true, ..Captured::default() }),
    }
}

fn over(next: Do) -> Report {
    match next {
        Do::Over(report) => *report,
        other => panic!("not over: {other:?}"),
    }
}

fn spool(next: Do) -> Undelivered {
    match next {
        Do::Spool(undelivered) => *undelivered,
        other => panic!("not spooled: {other:?}"),
    }
}

fn resolved_not_executed(looked_at: u64) -> Event {
    Event::Resolved(ctrlrun::plan::effect::Resolved {
        decision: ctrlrun::plan::effect::ProbeAnswer::NotExecuted,
        by: "p".to_owned(),
        reason: "r".to_owned(),
        probe: false,
        looked_at,
    })
}

fn lapsed() -> Event {
    Event::Ambiguated(ctrlrun::plan::effect::Ambiguated {
        cause: ctrlrun::plan::effect::Cause::Lapsed,
        reaped: false,
        ending: None,
    })
}

#[test]
fn each_step_is_durable_before_the_next() {
    // EXE-1
    let mut world = World::new();
    let Do::Start { holder, not_after, .. } = world.step(Came::Call) else { panic!() };
    assert_eq!(world.log, ["reserved", "began"]);
    assert_eq!((holder.attempt, not_after), (1, Moment(60_000_000)));
    let Do::Watch { until } = world.step(Came::Started) else { panic!() };
    assert_eq!(until, Moment(20_000_000), "a lease is renewed every third of it");
    let report = over(world.step(exited(0)));
    assert!(report.ran && report.spooled.is_none());
    assert!(matches!(report.result, Outcome::Settled { verdict: Verdict::Committed, .. }));
    assert_eq!(world.log, ["reserved", "began", "committed"]);
    assert_eq!(world.outputs, [(1, Stream::Stdout)], "an empty stream needs no row");
}

#[test]
fn what_could_not_be_started_is_failed_and_frees_the_key() {
    // EXE-2
    let mut world = World::new();
    assert!(matches!(world.step(Came::Call), Do::Start { .. }));
    let report = over(world.step(Came::NotStarted { detail: "no such file".to_owned() }));
    assert!(!report.ran);
    assert!(matches!(report.result, Outcome::Settled { verdict: Verdict::NeverStarted, .. }));
    let state = world.record.unwrap().state;
    assert_eq!(state, State::Failed { by: FailedBy::NeverStarted });
}

#[test]
fn a_lease_that_ended_before_the_start_runs_nothing() {
    // EXE-8, T161 in the small: the driver saw the moment pass.
    let mut world = World::new();
    assert!(matches!(world.step(Came::Call), Do::Start { .. }));
    let report = over(world.step(Came::TooLate));
    assert!(!report.ran);
    assert!(matches!(report.result, Outcome::Refused(Refusal::TooLate)));
    assert_eq!(world.record.unwrap().state, State::Failed { by: FailedBy::NeverStarted });
}

#[test]
fn a_lease_is_counted_from_before_the_load_and_a_second_try_keeps_that() {
    // EXE-8: the begin's first try is unknown and did not land; time passes; the second lands.
    let mut world = World::with_faults(&[Fault::None, Fault::UnknownNotLanded]);
    let mut next = world.machine.step(Came::Call, Moment(0));
    let not_after = loop {
        match next {
            Do::Store(step) => {
                if matches!(step, Step::Reread { .. }) {
                    world.at += 5_000_000;
                }
                let input = world.store(step);
                next = world.machine.step(Came::Store(Box::new(input)), Moment(world.at));
            }
            Do::Start { not_after, .. } => break not_after,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(not_after, Moment(60_000_000));
}

#[test]
fn an_unknown_reservation_runs_nothing_and_is_spooled_as_never_started() {
    // CMT-10, EXE-24: the re-read fails too.
    let mut world = World::with_faults(&[Fault::UnknownLanded]);
    world.rereads_fail = true;
    let undelivered = spool(world.step(Came::Call));
    assert_eq!(undelivered.settle.verdict, Verdict::NeverStarted);
    let row = world.record.clone().unwrap();
    assert!(row.is_held_by(undelivered.settle.holder));
    let report = over(world.step(Came::Spooled(Ok(()))));
    assert!(!report.ran && matches!(report.result, Outcome::Unknown(_)));
    assert_eq!(report.spooled, Some(Ok(())));
}

#[test]
fn an_unknown_lapse_never_speaks_for_the_holder_that_it_was_about() {
    // A contender writes the lapse of another's lease, and that write's end stays unknown. Spooling
    // "never started" for the row's reservation would call a running child FAILED.
    let mut world = World::started(&[]);
    world.at = 61_000_000;
    world.machine = Attempt::new(order(), Moment(world.at));
    world.faults = vec![Fault::UnknownLanded];
    world.rereads_fail = true;
    let report = over(world.step(Came::Call));
    assert!(!report.ran && matches!(report.result, Outcome::Unknown(_)));
    assert_eq!(report.spooled, None);
}

#[test]
fn an_unknown_reservation_that_landed_runs_once() {
    let mut world = World::with_faults(&[Fault::UnknownLanded]);
    assert!(matches!(world.step(Came::Call), Do::Start { .. }));
    assert_eq!(world.log, ["reserved", "began"]);
}

#[test]
fn an_unknown_begin_runs_nothing_and_is_spooled_as_never_started() {
    let mut world = World::with_faults(&[Fault::None, Fault::UnknownLanded]);
    world.rereads_fail = true;
    let undelivered = spool(world.step(Came::Call));
    assert_eq!(undelivered.settle.verdict, Verdict::NeverStarted);
    let report = over(world.step(Came::Spooled(Ok(()))));
    assert!(!report.ran && matches!(report.result, Outcome::Unknown(_)));
}

#[test]
fn the_outcome_is_spooled_at_the_first_failed_settle_before_any_retry() {
    // EXE-24
    let mut world = World::started(&[Fault::None, Fault::None, Fault::NotCommitted]);
    let undelivered = spool(world.step(exited(0)));
    assert_eq!(world.log, ["reserved", "began"], "no retry before the spool");
    assert_eq!(undelivered.settle.verdict, Verdict::Committed);
    assert_eq!(undelivered.settle.outcome_id, OUTCOME);
    assert_eq!(undelivered.outputs.len(), 1);
    // The retry lands, so the file goes.
    let Do::Unspool(outcome) = world.step(Came::Spooled(Ok(()))) else { panic!() };
    assert_eq!(outcome, OUTCOME);
    let report = over(world.step(Came::Unspooled));
    assert!(matches!(report.result, Outcome::Settled { verdict: Verdict::Committed, .. }));
    assert_eq!((report.spooled, world.log.last().unwrap().as_str()), (None, "committed"));
}

#[test]
fn an_outcome_that_never_reaches_the_store_is_reported_with_what_it_was() {
    let faults: Vec<Fault> =
        [Fault::None, Fault::None].into_iter().chain([Fault::NotCommitted; 2_000]).collect();
    let mut world = World::started(&faults);
    let _ = spool(world.step(exited(0)));
    let report = over(world.step(Came::Spooled(Err("full".to_owned()))));
    let Outcome::NotRecorded { undelivered, why: NotRecorded::Store(_) } = report.result else {
        panic!("{:?}", report.result)
    };
    assert!(report.ran);
    assert_eq!(undelivered.settle.verdict, Verdict::Committed);
    assert_eq!(report.spooled, Some(Err("full".to_owned())));
}

#[test]
fn an_outcome_that_the_store_did_not_take_stays_in_the_spool() {
    // EXE-24: taking it out again would lose the only trace of it.
    let faults: Vec<Fault> =
        [Fault::None, Fault::None].into_iter().chain([Fault::NotCommitted; 2_000]).collect();
    let mut world = World::started(&faults);
    let _ = spool(world.step(exited(0)));
    let report = over(world.step(Came::Spooled(Ok(()))));
    assert!(matches!(report.result, Outcome::NotRecorded { why: NotRecorded::Store(_), .. }));
    assert_eq!(report.spooled, Some(Ok(())));
}

#[test]
fn a_late_word_that_the_history_has_is_taken_out_of_the_spool() {
    // EXE-24: what is recorded, if only as late, is delivered.
    let mut world = World::started(&[Fault::None, Fault::None, Fault::NotCommitted]);
    world.other(lapsed());
    let _ = spool(world.step(exited(0)));
    let Do::Unspool(outcome) = world.step(Came::Spooled(Ok(()))) else { panic!() };
    assert_eq!(outcome, OUTCOME);
    let report = over(world.step(Came::Unspooled));
    assert!(matches!(report.result, Outcome::NotRecorded { why: NotRecorded::Late, .. }));
    assert_eq!(report.spooled, None);
}

#[test]
fn a_start_that_failed_on_a_record_that_is_no_longer_ours_is_a_refusal() {
    // EFF-13: nothing ran, so there is no outcome that could be missing.
    let mut world = World::new();
    assert!(matches!(world.step(Came::Call), Do::Start { .. }));
    world.other(lapsed());
    let report = over(world.step(Came::NotStarted { detail: "no such file".to_owned() }));
    assert!(!report.ran);
    assert!(matches!(report.result, Outcome::Refused(Refusal::Ambiguous)), "{:?}", report.result);
}

#[test]
fn no_exchange_takes_more_than_a_quarter_of_the_lease() {
    // CMT-14
    for (lease_s, within_s) in [(60, 10), (20, 5)] {
        let lease = Duration::from_secs(lease_s);
        let mut machine = Attempt::new(Order { lease, ..order() }, Moment(0));
        let Do::Store(Step::Load { within, .. }) = machine.step(Came::Call, Moment(0)) else {
            panic!()
        };
        assert_eq!(within, Duration::from_secs(within_s));
    }
}

#[test]
fn a_settle_has_six_times_the_patience_of_a_reserve() {
    // CMT-14: an outcome is worth waiting for, also when hardly anything is left of the lease.
    let mut world = World::started(&[]);
    world.at = 59_999_000;
    let begun = Moment(world.at);
    let mut next = world.machine.step(exited(0), begun);
    // The store answers nothing but "busy", ten seconds later each time.
    let mut loads = 0;
    let last = loop {
        world.at += 10_000_000;
        let came = match next {
            Do::Store(Step::Load { .. }) => {
                loads += 1;
                let busy = CouldNot { reason: Reason::Busy, ..could_not() };
                Came::Store(Box::new(Input::Loaded(Err(busy), WriteId(Uuid::nil()))))
            }
            Do::Store(Step::Pause(_)) => Came::Store(Box::new(Input::Paused)),
            Do::Spool(_) => Came::Spooled(Ok(())),
            Do::Over(report) => break *report,
            other => panic!("{other:?}"),
        };
        next = world.machine.step(came, Moment(world.at));
    };
    assert!(matches!(last.result, Outcome::NotRecorded { why: NotRecorded::Store(_), .. }));
    let patience = Duration::from_secs(60);
    assert!(Moment(world.at).from_now(begun) >= patience, "it gave up after {loads} loads");
}

#[test]
fn a_settle_that_landed_unseen_ends_as_landed_though_the_record_moved_on() {
    // T164: the settle as FAILED lands, its answer is lost, another attempt takes the key.
    let mut world = World::started(&[Fault::None, Fault::None, Fault::UnknownLanded]);
    let undelivered = spool(world.step(exited(6)));
    assert_eq!(undelivered.settle.verdict, Verdict::Failed);
    world.other(Event::Reserved(ctrlrun::plan::effect::Reserved {
        attempt: 2,
        attempt_id: "b".to_owned(),
        request: order().request,
        lease_expires_at: Timestamp(90_000_000),
        run_id: None,
    }));
    assert!(matches!(world.step(Came::Spooled(Ok(()))), Do::Unspool(_)));
    let report = over(world.step(Came::Unspooled));
    assert!(matches!(report.result, Outcome::Settled { verdict: Verdict::Failed, .. }));
    assert_eq!(world.log, ["reserved", "began", "failed"], "no false late outcome");
}

#[test]
fn a_word_about_an_effect_that_is_gone_stays_in_the_spool_if_it_may_have_happened() {
    // EXE-25: the store was restored while the child ran.
    let mut world = World::started(&[]);
    (world.record, world.history) = (None, Vec::new());
    assert_eq!(spool(world.step(exited(0))).settle.verdict, Verdict::Committed);
    let report = over(world.step(Came::Spooled(Ok(()))));
    assert!(matches!(report.result, Outcome::NotRecorded { why: NotRecorded::Forgotten, .. }));
    assert_eq!(report.spooled, Some(Ok(())), "and is not removed");
    let mut world = World::started(&[]);
    (world.record, world.history) = (None, Vec::new());
    let report = over(world.step(exited(6)));
    assert!(matches!(report.result, Outcome::NotRecorded { why: NotRecorded::Forgotten, .. }));
    assert_eq!(report.spooled, None, "a word that nothing happened stands in nobody's way");
}

#[test]
fn a_renewal_goes_on_beside_the_child() {
    // EXE-7
    let mut world = World::started(&[]);
    world.at = 20_000_000;
    let Do::Renew(mut write) = world.step(Came::Due) else { panic!() };
    let Do::Watch { until } = world.step(Came::UnderWay) else { panic!() };
    assert_eq!(until, Moment(u64::MAX), "no second renewal while one is under way");
    let done = world.drive(&mut write);
    let Do::Watch { until } = world.step(Came::Renewed(done)) else { panic!() };
    assert_eq!(until, Moment(40_000_000));
    let report = over(world.step(exited(0)));
    assert!(matches!(report.result, Outcome::Settled { .. }) && !report.lost);
    assert_eq!(world.log, ["reserved", "began", "lease_renewed", "committed"]);
}

#[test]
fn a_renewal_waits_until_it_is_due_and_for_the_one_before_it() {
    // EXE-7: due a third of the lease after the reading that the lease is counted from, however long
    // the start took.
    let mut world = World::new();
    assert!(matches!(world.step(Came::Call), Do::Start { .. }));
    world.at = 9_000_000;
    let Do::Watch { until } = world.step(Came::Started) else { panic!() };
    assert_eq!(until, Moment(20_000_000));
    world.at = 19_999_999;
    let Do::Watch { until } = world.step(Came::Due) else { panic!("it was not due") };
    assert_eq!(until, Moment(20_000_000));
    world.at = 20_000_000;
    assert!(matches!(world.step(Came::Due), Do::Renew(_)));
    world.at = 50_000_000;
    let Do::Watch { until } = world.step(Came::Due) else { panic!("one is under way") };
    assert_eq!(until, Moment(u64::MAX));
}

#[test]
fn no_exchange_of_a_renewal_takes_more_than_a_quarter_of_the_lease() {
    // CMT-14
    for (lease_s, within_s) in [(60, 10), (20, 5)] {
        let mut world = World::new();
        let lease = Duration::from_secs(lease_s);
        world.machine = Attempt::new(Order { lease, ..order() }, Moment(0));
        assert!(matches!(world.step(Came::Call), Do::Start { .. }));
        assert!(matches!(world.step(Came::Started), Do::Watch { .. }));
        world.at = lease_s * 1_000_000 / 3 + 1;
        let Do::Renew(mut write) = world.step(Came::Due) else { panic!() };
        let Step::Load { within, .. } = write.step(Input::Start, Moment(world.at)) else {
            panic!()
        };
        assert_eq!(within, Duration::from_secs(within_s));
    }
}

#[test]
fn what_the_record_refuses_ends_the_attempt_with_that() {
    // EFF-11, EFF-13
    let mut world = World::started(&[]);
    let _ = over(world.step(exited(0)));
    world.machine = Attempt::new(order(), Moment(0));
    let report = over(world.step(Came::Call));
    assert!(matches!(report.result, Outcome::CommittedAlready), "{:?}", report.result);
    assert!(!report.ran);
    world.machine = Attempt::new(Order { expect: StreamState::NoStream, ..order() }, Moment(0));
    let report = over(world.step(Came::Call));
    assert!(matches!(report.result, Outcome::Refused(_)), "{:?}", report.result);
    // Somebody has decided between the reservation and the begin.
    let mut world = World::new();
    world.machine = Attempt::gated(order(), Moment(0));
    assert_eq!(world.machine.attempt_id(), "a");
    assert!(matches!(world.step(Came::Call), Do::Granted));
    world.other(lapsed());
    // What it knows of the record is what it wrote itself; the store refuses that, and it looks.
    let report = over(world.step(Came::Begin));
    assert!(matches!(report.result, Outcome::Refused(Refusal::Ambiguous)), "{:?}", report.result);
    assert!(!report.ran);
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_the_child_is_not_told() {
    let mut world = World::started(&[]);
    world.at = 20_000_000;
    assert!(matches!(world.step(Came::Due), Do::Renew(_)));
    let _ = world.step(Came::UnderWay);
    let Do::Watch { until } = world.step(Came::Renewed(Done::CouldNot(could_not()))) else {
        panic!()
    };
    assert_eq!(until, Moment(25_000_000));
}

#[test]
fn a_lapse_that_a_contender_wrote_lets_the_child_run_and_keeps_its_word_as_late() {
    // EXE-9: AMBIGUOUS by lapse is no reason to end the child.
    let mut world = World::started(&[]);
    world.other(lapsed());
    world.at = 61_000_000;
    let Do::Renew(mut write) = world.step(Came::Due) else { panic!() };
    let done = world.drive(&mut write);
    assert!(matches!(world.step(Came::Renewed(done)), Do::Watch { .. }));
    let report = over(world.step(exited(0)));
    assert!(report.lost && report.ran);
    assert!(matches!(report.result, Outcome::NotRecorded { why: NotRecorded::Late, .. }));
    assert_eq!(world.log.last().unwrap(), "late_outcome");
    assert!(world.record.unwrap().in_doubt);
}

#[test]
fn a_child_whose_record_stands_failed_is_ended_once() {
    // EXE-9: resolved as not executed while it runs: another attempt may run now.
    let mut world = World::started(&[]);
    world.other(lapsed());
    world.other(resolved_not_executed(3));
    world.at = 61_000_000;
    let Do::Renew(mut write) = world.step(Came::Due) else { panic!() };
    let done = world.drive(&mut write);
    assert!(matches!(world.step(Came::Renewed(done)), Do::EndChild));
    let Do::Watch { until } = world.step(Came::UnderWay) else { panic!() };
    assert_eq!(until, Moment(81_000_000));
    world.at = until.0;
    let Do::Renew(mut write) = world.step(Came::Due) else { panic!() };
    let done = world.drive(&mut write);
    assert!(matches!(world.step(Came::Renewed(done)), Do::Watch { .. }), "not a second time");
    let _ = over(world.step(exited(0)));
    assert_eq!(world.log.last().unwrap(), "late_outcome+ambiguated", "EFF-17");
}

#[test]
fn a_failed_that_a_doubt_turned_ambiguous_is_reported_as_that() {
    // EFF-7: told, and retried, by what the record says. A late word of an older holder set the doubt.
    let mut world = World::started(&[]);
    world.other(Event::LateOutcome(ctrlrun::plan::effect::LateOutcome {
        attempt: 0,
        reservation_id: WriteId(Uuid::from_u128(99)),
        word: Verdict::Committed,
        doubt: true,
        ending: ctrlrun::plan::effect::Ending::default(),
    }));
    let report = over(world.step(exited(6)));
    assert!(matches!(report.result, Outcome::Settled { verdict: Verdict::Ambiguous { .. }, .. }));
    let mut again = ctrlrun::plan::again::Again::new(Moment(0), 5, Duration::from_secs(1));
    assert_eq!(again.next(&report, Moment(0)), ctrlrun::plan::again::Next::Stop);
}

#[test]
fn an_answer_that_nobody_asked_for_starts_nothing() {
    for came in [Came::Started, Came::Due, exited(0), Came::Unspooled, Came::TooLate] {
        let mut world = World::new();
        let report = over(world.step(came));
        assert!(!report.ran && matches!(report.result, Outcome::Unknown(_)));
    }
}

#[test]
fn a_holder_is_told_by_attempt_and_reservation() {
    // EFF-4
    let mut world = World::new();
    let Do::Start { holder, .. } = world.step(Came::Call) else { panic!() };
    let record = world.record.unwrap();
    assert!(record.is_held_by(holder));
    let other = Holder { reservation_id: WriteId(Uuid::from_u128(9)), ..holder };
    assert!(!record.is_held_by(other));
    assert!(!record.is_held_by(Holder { attempt: 2, ..holder }));
}

#[test]
fn an_outcome_that_others_were_faster_than_is_spooled_when_the_time_is_over() {
    // EXE-24: no try failed, one matched no row. It once ended unrecorded and unspooled.
    let mut world = World::started(&[]);
    let Do::Store(load) = world.machine.step(exited(0), Moment(world.at)) else { panic!() };
    let loaded = world.store(load);
    let append = world.machine.step(Came::Store(Box::new(loaded)), Moment(world.at));
    world.other(lapsed());
    world.at += 120_000_000;
    let Do::Store(append) = append else { panic!() };
    let refused = world.store(append);
    assert_eq!(refused, Input::Ended(End::Refused));
    let next = world.machine.step(Came::Store(Box::new(refused)), Moment(world.at));
    assert_eq!(spool(next).settle.verdict, Verdict::Committed);
    let report = over(world.step(Came::Spooled(Ok(()))));
    assert!(matches!(report.result, Outcome::NotRecorded { why: NotRecorded::Store(_), .. }));
    assert_eq!(report.spooled, Some(Ok(())));
}

#[test]
fn a_gated_attempt_begins_only_when_there_is_a_place_for_its_child() {
    // BAT-9
    let mut world = World::new();
    world.machine = Attempt::gated(order(), Moment(0));
    assert!(matches!(world.step(Came::Call), Do::Granted));
    assert_eq!(world.log, ["reserved"]);
    assert!(matches!(world.step(Came::Begin), Do::Start { .. }));
    assert_eq!(world.log, ["reserved", "began"]);
}

#[test]
fn a_reservation_that_is_given_back_is_settled_never_started() {
    // BAT-10
    let mut world = World::new();
    world.machine = Attempt::gated(order(), Moment(0));
    assert!(matches!(world.step(Came::Call), Do::Granted));
    let report = over(world.step(Came::Release { detail: "no place".to_owned() }));
    assert_eq!(world.log, ["reserved", "failed"]);
    assert!(!report.ran);
    assert!(matches!(report.result, Outcome::Settled { verdict: Verdict::NeverStarted, .. }));
}
