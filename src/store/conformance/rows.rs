//! What is written comes back column for column: states, times, texts, keys, outputs.
use super::{
    Check, Lab, Stream, ambiguated, began, committed, draw, failed, fold, land, reserved, same,
};
use crate::plan::effect::{
    Cause, Ending, Event, FailedBy, LateOutcome, ProbeAnswer, Probed, Reopened, Reserved, Resolved,
    Verdict, WriteId,
};
use crate::plan::key::Key;
use crate::plan::protocol::{Captured, Kept};
use crate::plan::time::Timestamp;
use crate::store::{Ask, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("every state, kind and cause comes back", every_state),
    ("every event comes back", every_event),
    ("microseconds and far times come back", times),
    ("large numbers come back", numbers),
    ("texts come back, whatever is in them", texts),
    ("a workflow run's id comes back", run_id),
    ("keys are bytes", keys_are_bytes),
    ("outputs are kept and replaced", outputs),
    ("an output of nothing is not the same as no output", empty_output),
    ("a large output comes back", large_output),
];

fn resolved(decision: ProbeAnswer, probe: bool) -> Event {
    Event::Resolved(Resolved {
        decision,
        by: if probe { "reconcile:p" } else { "oncall@bastion" }.to_owned(),
        reason: "looked".to_owned(),
        probe,
        looked_at: 1,
    })
}

fn reopened() -> Event {
    Event::Reopened(Reopened {
        by: "oncall@bastion".to_owned(),
        reason: "wrong account".to_owned(),
        looked_at: 4,
    })
}

fn late(word: Verdict, doubt: bool) -> Result<Event, String> {
    Ok(Event::LateOutcome(LateOutcome {
        attempt: 1,
        reservation_id: WriteId(draw()?),
        word,
        doubt,
        ending: Ending::default(),
    }))
}

/// Histories that end in every state, by every way there is.
fn histories(now: Timestamp) -> Result<Vec<Vec<Event>>, String> {
    let start = || vec![reserved(1, now), began(now)];
    let then = |events: &[Event]| [start(), events.to_vec()].concat();
    let ambiguous = || ambiguated(Cause::Exit);
    let causes = [
        Cause::Lapsed,
        Cause::Exit,
        Cause::Signal,
        Cause::Timeout,
        Cause::Contradiction,
        Cause::LateOutcome,
    ];
    let decisions = [ProbeAnswer::Committed, ProbeAnswer::NotExecuted];
    let mut all = vec![
        vec![reserved(1, now)],
        start(),
        then(&[committed()]),
        then(&[failed(FailedBy::OwnWord)]),
        then(&[failed(FailedBy::NeverStarted)]),
        then(&[failed(FailedBy::OwnWord), reserved(2, now)]),
        then(&[failed(FailedBy::OwnWord), reopened()]),
        then(&[committed(), reopened()]),
        then(&[
            failed(FailedBy::OwnWord),
            late(Verdict::Committed, true)?,
            ambiguated(Cause::LateOutcome),
        ]),
        then(&[late(Verdict::Committed, true)?]),
    ];
    all.extend(causes.map(|cause| then(&[ambiguated(cause)])));
    for probe in [false, true] {
        all.extend(decisions.map(|decision| then(&[ambiguous(), resolved(decision, probe)])));
        all.extend(decisions.map(|decision| {
            let decided = resolved(decision, probe);
            then(&[ambiguous(), decided, reopened()])
        }));
    }
    Ok(all)
}

fn every_state(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let now = lab.load(&lab.key("now")?, Ask::Nothing)?.now;
    for (number, events) in histories(now)?.iter().enumerate() {
        // By one append, and by one for each event: every state is reached by INSERT and UPDATE.
        let whole = lab.key(&format!("whole{number}"))?;
        let record = lab.put(&whole, events)?;
        lab.holds(&whole, &record, events.len())?;
        let single = lab.key(&format!("single{number}"))?;
        for event in events {
            let record = lab.put(&single, std::slice::from_ref(event))?;
            same(&lab.record(&single)?, &record, "the row")?;
        }
    }
    Ok(())
}

fn every_event(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    let probed =
        Event::Probed(Probed { answer: ProbeAnswer::NotExecuted, by: "reconcile:p".to_owned() });
    let word = Verdict::Ambiguous { cause: Cause::Signal, reaped: true };
    let events = [
        reserved(1, found.now),
        began(found.now),
        super::renewed(found.now),
        ambiguated(Cause::Signal),
        probed,
        late(word, true)?,
        resolved(ProbeAnswer::NotExecuted, false),
        reopened(),
        resolved(ProbeAnswer::NotExecuted, true),
        reserved(2, found.now),
        failed(FailedBy::OwnWord),
        reserved(3, found.now),
        committed(),
    ];
    let append = fold(&key, &found, &events)?;
    land(store, &append)?;
    same(&lab.history(&key)?, &append.history, "the history")
}

fn times(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    // Leases far ahead and long over; what a clock that is set wrong would write.
    for (number, micros) in
        [1, 1_796_033_700_123_457, -1, 253_402_300_799_999_999].into_iter().enumerate()
    {
        let key = lab.key(&number.to_string())?;
        let mut found = lab.load(&key, Ask::Nothing)?;
        found.now = Timestamp(micros);
        let append = fold(&key, &found, &[reserved(1, found.now)])?;
        land(store, &append)?;
        same(&lab.record(&key)?, &append.next, "the row")?;
        same(&lab.history(&key)?, &append.history, "the history")?;
    }
    Ok(())
}

fn numbers(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    // Beyond what a floating-point number holds exactly.
    let attempt = (1 << 53) + 1;
    let found = lab.load(&key, Ask::Nothing)?;
    let mut append = fold(&key, &found, &[reserved(attempt, found.now)])?;
    append.next.proven_failures = attempt;
    append.next.request.arguments = u32::MAX;
    append.next.ending =
        Some(Ending { exit_code: Some(i32::MIN), signal: Some(i32::MAX), detail: String::new() });
    land(store, &append)?;
    same(&lab.record(&key)?, &append.next, "the row")?;
    let asked = lab.load(&key, Ask::Revision(u64::MAX))?;
    same(&asked.event, &None, "an event beyond every number")
}

fn texts(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let odd = [
        "",
        "'; DROP TABLE effects; --",
        "\u{e9} e\u{301} \u{1f600} \u{202e}",
        "a\nb\tc\u{1b}[31m\u{7f}",
        "\\ \" % _ ? $1 {x}",
    ];
    for (number, text) in odd.into_iter().enumerate() {
        let key = lab.key(&number.to_string())?;
        let found = lab.load(&key, Ask::Nothing)?;
        let mut reserving = reserved(1, found.now);
        if let Event::Reserved(Reserved { attempt_id, request, .. }) = &mut reserving {
            *attempt_id = text.to_owned();
            request.program = text.to_owned();
            request.command = Some(vec![text.to_owned(), text.to_owned()]);
        }
        let decided = Event::Resolved(Resolved {
            decision: ProbeAnswer::Committed,
            by: text.to_owned(),
            reason: text.to_owned(),
            probe: false,
            looked_at: 2,
        });
        let ending = Ending { exit_code: Some(1), signal: None, detail: text.to_owned() };
        let doubt = Event::Ambiguated(crate::plan::effect::Ambiguated {
            cause: Cause::Exit,
            reaped: false,
            ending: Some(ending),
        });
        let append = fold(&key, &found, &[reserving, doubt, decided])?;
        land(store, &append)?;
        same(&lab.record(&key)?, &append.next, "the row")?;
        same(&lab.history(&key)?, &append.history, "the history")?;
    }
    Ok(())
}

fn run_id(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let found = lab.load(&key, Ask::Nothing)?;
    let mut reserving = reserved(1, found.now);
    if let Event::Reserved(reserving) = &mut reserving {
        reserving.run_id = Some("night/2026-11-30".to_owned());
    }
    let record = lab.put(&key, &[reserving])?;
    same(&record.run_id.as_deref(), &Some("night/2026-11-30"), "the run")?;
    same(&lab.record(&key)?, &record, "the row")
}

fn keys_are_bytes(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let now = lab.load(&lab.key("now")?, Ask::Nothing)?.now;
    let full = "x".repeat(crate::plan::key::KEY_BYTES_MAX - lab.prefix.len());
    let names = [
        "K",
        "k",
        "\u{e9}",
        "e\u{301}",
        "it's \"quoted\"",
        "-x",
        "a b",
        "a%",
        "a_",
        "ab",
        "\u{df}",
        "ss",
        &full,
    ];
    let mut written = Vec::new();
    for name in names {
        let key = lab.key(name)?;
        written.push((key.clone(), lab.put(&key, &[reserved(1, now)])?));
    }
    for (key, record) in &written {
        lab.holds(key, record, 1)?;
    }
    // A key that begins otherwise than every other one.
    let dashed = Key::new(format!("-{}", lab.prefix)).map_err(|error| error.to_string())?;
    let record = lab.put(&dashed, &[reserved(1, now)])?;
    lab.holds(&dashed, &record, 1)
}

fn kept(attempt: u64, stream: Stream, head: &[u8], tail: &[u8], bytes: u64) -> Kept {
    let captured = Captured {
        head: head.to_vec(),
        tail: tail.to_vec(),
        bytes,
        whole: bytes == (head.len() + tail.len()) as u64,
    };
    Kept { attempt, stream, captured }
}

fn outputs(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    lab.put(&key, &[reserved(1, now), began(now)])?;
    let all: Vec<u8> = (0..=255).collect();
    let out = kept(1, Stream::Stdout, &all, b"\0end", 9_999);
    let err = kept(1, Stream::Stderr, b"", b"", 0);
    lab.put_with(&key, &[ambiguated(Cause::Exit)], vec![out.clone(), err.clone()])?;
    let stated = kept(1, Stream::Stated, b"re_5512\n", b"", 8);
    let again = kept(1, Stream::Stderr, b"later", b"", 5);
    let decided = resolved(ProbeAnswer::Committed, false);
    lab.put_with(&key, &[decided], vec![stated.clone(), again.clone()])?;
    for wanted in [out, again, stated] {
        let found = lab.output(&key, 1, wanted.stream)?;
        same(&found, &Some(wanted.captured), "the output")?;
    }
    same(&lab.output(&key, 2, Stream::Stdout)?, &None, "of another attempt")
}

fn empty_output(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    let nothing = kept(1, Stream::Stdout, b"", b"", 0);
    let events = [reserved(1, now), began(now), committed()];
    lab.put_with(&key, &events, vec![nothing.clone()])?;
    let found = lab.output(&key, 1, Stream::Stdout)?;
    same(&found, &Some(nothing.captured), "the output")?;
    same(&lab.output(&key, 1, Stream::Stderr)?, &None, "the other one")
}

fn large_output(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.load(&key, Ask::Nothing)?.now;
    let large = vec![0xa5; 1 << 20];
    let out = kept(1, Stream::Stdout, &large, &large, 1 << 40);
    let events = [reserved(1, now), began(now), committed()];
    lab.put_with(&key, &events, vec![out.clone()])?;
    let found = lab.output(&key, 1, Stream::Stdout)?;
    if found == Some(out.captured) {
        Ok(())
    } else {
        Err("a mebibyte of output did not come back as it was".to_owned())
    }
}
