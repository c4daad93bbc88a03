//! One budget of tries and time, and what it bounds (CMT-14): a part of plan_protocol.rs.
use std::collections::BTreeSet;
use std::time::Duration;

use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::protocol::{Done, End, Found, Input, Reason, Step};
use ctrlrun::plan::retry::Budget;
use ctrlrun::plan::time::Moment;

use crate::plan_common::write_id;
use crate::stepping::{EXCHANGE, Machine, executing, found, reserving, why};

/// What a store answers to a load, an append or a re-read.
type Store = Box<dyn FnMut(Exchange) -> Input>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exchange {
    Load,
    Append,
    Reread,
}

/// Steps on `store` until the machine is done; how many exchanges it asked for, and the end.
fn exhaust(machine: &mut Machine, store: &mut Store) -> (u32, Done) {
    let (mut asked, mut step) = (0, machine.step(Input::Start));
    loop {
        let input = match step {
            Step::Done(done) => return (asked, done),
            Step::Pause(_) => Input::Paused,
            Step::Draw => panic!("nothing is known without a load"),
            Step::Load { .. } => store(Exchange::Load),
            Step::Append { .. } => store(Exchange::Append),
            Step::Reread { .. } => store(Exchange::Reread),
        };
        asked += u32::from(input != Input::Paused);
        assert!(asked < 10_000, "it does not end");
        step = machine.step(input);
    }
}

/// Stores that never let a reserve through, each in its own way.
fn hopeless() -> Vec<(&'static str, Store)> {
    let store = |append: fn(u32) -> End, there: fn() -> Found| -> Store {
        let mut appends = 0;
        Box::new(move |exchange| match exchange {
            Exchange::Load => Input::Loaded(Ok(found(None)), write_id(1)),
            Exchange::Reread => Input::Reread(Ok(there())),
            Exchange::Append => {
                appends += 1;
                Input::Ended(append(appends))
            }
        })
    };
    let lost = |_| End::Unknown(why(Reason::Unreachable));
    let locked = |_| End::NotCommitted(why(Reason::Busy));
    vec![
        ("it cannot be read", Box::new(|_| Input::Loaded(Err(why(Reason::Busy)), write_id(1)))),
        ("it is always locked", store(locked, || found(None))),
        ("somebody is always faster", store(|_| End::Refused, || found(None))),
        (
            "answers are lost, and somebody else's row is found",
            store(lost, || found(Some(executing()))),
        ),
        (
            "answers are lost, and the floor has moved",
            store(lost, || Found { attempt_floor: 9, ..found(None) }),
        ),
        (
            "the first answer is lost, and then it is locked",
            store(
                |n| match n {
                    1 => End::Unknown(why(Reason::Unreachable)),
                    _ => End::NotCommitted(why(Reason::Busy)),
                },
                || found(None),
            ),
        ),
    ]
}

#[test]
fn a_budget_ends_every_command_by_tries() {
    // CMT-14
    for (name, mut store) in hopeless() {
        let budget = Budget::new(5, Moment(u64::MAX), EXCHANGE);
        let mut machine = Machine::within(reserving(), StreamState::Any, budget);
        let (asked, done) = exhaust(&mut machine, &mut store);
        assert!((6..=20).contains(&asked), "{name}: {asked} exchanges");
        let nothing_written = !name.contains("floor") && !name.contains("first answer");
        assert_eq!(matches!(done, Done::CouldNot(_)), nothing_written, "{name}");
        assert_eq!(matches!(done, Done::Unknown(_)), !nothing_written, "{name}");
    }
}

#[test]
fn a_budget_ends_every_command_by_time() {
    // CMT-14: 1 ms between any two steps of these machines, 50 ms in all.
    for (name, mut store) in hopeless() {
        let budget = Budget::new(u32::MAX, Moment(50_000), EXCHANGE);
        let mut machine = Machine::within(reserving(), StreamState::Any, budget);
        let (_, done) = exhaust(&mut machine, &mut store);
        assert!((50..60).contains(&(machine.at / 1_000)), "{name}: {}", machine.at);
        assert!(!matches!(done, Done::Answered(_)), "{name}");
    }
}

#[test]
fn no_exchange_may_take_longer_than_the_cap_or_what_is_left() {
    // CMT-14
    let deadline = 150_000;
    let budget = Budget::new(u32::MAX, Moment(deadline), EXCHANGE);
    let mut machine = Machine::within(reserving(), StreamState::Any, budget);
    let mut seen = BTreeSet::new();
    let mut step = machine.step(Input::Start);
    loop {
        let left = Duration::from_micros(deadline - machine.at.min(deadline));
        let (name, within, input) = match step {
            Step::Load { within, .. } => {
                let answer = Input::Loaded(Ok(found(None)), write_id(9));
                ("load", within, answer)
            }
            Step::Append { within, .. } if seen.contains("reread") => {
                let busy = End::NotCommitted(why(Reason::Busy));
                ("append again", within, Input::Ended(busy))
            }
            Step::Append { within, .. } => {
                let lost = End::Unknown(why(Reason::Busy));
                ("append", within, Input::Ended(lost))
            }
            Step::Reread { within, .. } => ("reread", within, Input::Reread(Ok(found(None)))),
            Step::Pause(_) => {
                step = machine.step(Input::Paused);
                continue;
            }
            Step::Done(_) => break,
            Step::Draw => panic!("nothing is known without a load"),
        };
        assert_eq!(within, left.min(EXCHANGE), "{name} at {}", machine.at);
        assert!(machine.at < 10 * deadline, "it does not end");
        seen.insert(name);
        step = machine.step(input);
    }
    assert_eq!(seen, ["append", "append again", "load", "reread"].into());
}
