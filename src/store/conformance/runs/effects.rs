//! What an effect's append does for the run that the effect belongs to (WFL-9, WFL-10), and how a tick
//! looks at effects.
use super::super::{ambiguated, began, committed, failed, fold as fold_effect, renewed, reserved};
use super::{Check, Desk, WITHIN, WriteId, blocked, dispatch, draw, ended, noted, same};
use crate::plan::effect::{Cause, Event, FailedBy, ProbeAnswer, Record, Resolved};
use crate::plan::key::Key;
use crate::plan::protocol::{Captured, Kept, Stream};
use crate::plan::workflow::{DispatchRef, RunId, Taken};
use crate::store::{Append, Ask, End, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("an effect that is settled wakes its run, in the same write", settled),
    ("a reservation, a begin and a renewal wake nobody", in_flight),
    ("an effect of no run, or of one that is not there, wakes nobody", no_run),
    ("an append that is refused wakes nobody", refused_wakes_nobody),
    ("effects that are written together wake their runs", together),
    ("a reserve holds only while its dispatch is there", held_to_its_dispatch),
    ("a dispatch is not withdrawn once its effect was reserved", withdrawn),
    ("a tick loads effects and the outputs that replay would print", loaded),
];

impl Desk<'_> {
    fn effect(&self, key: &Key, events: &[Event], run: Option<&RunId>) -> Result<Append, String> {
        let found = self.store.load(key, Ask::Nothing, WITHIN).map_err(|e| e.to_string())?;
        let events: Vec<Event> = events
            .iter()
            .map(|event| {
                let mut event = event.clone();
                if let Event::Reserved(reserved) = &mut event {
                    reserved.run_id = run.map(|run| run.as_str().to_owned());
                }
                event
            })
            .collect();
        fold_effect(key, &found, &events)
    }

    fn write(&self, append: &Append) -> Result<Record, String> {
        ended(self.store.append(append, WITHIN), &End::Landed)?;
        Ok(append.next.clone())
    }

    fn woken(&self, run: &RunId) -> Result<Vec<String>, String> {
        let mut keys: Vec<String> =
            self.load(run)?.wakeups.into_iter().map(|wakeup| wakeup.key).collect();
        keys.sort();
        Ok(keys)
    }

    fn dispatch_of(&self, run: &RunId, node: &str) -> Result<DispatchRef, String> {
        let mut tick = self.append(run, &[noted("dispatched")])?;
        let dispatch = dispatch(run, node, tick.next.write_id, self.now()?)?;
        tick.dispatches_put = vec![dispatch.clone()];
        self.land(&tick)?;
        Ok(dispatch.id)
    }
}

fn settled(store: &dyn Store) -> Result<(), String> {
    // WFL-10
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let mut wanted = Vec::new();
    let endings: [(&str, Event); 3] =
        [("c", committed()), ("f", failed(FailedBy::OwnWord)), ("m", ambiguated(Cause::Exit))];
    for (node, ending) in endings {
        let key = desk.key(&run, node)?;
        desk.write(&desk.effect(&key, &[reserved(1, now), began(now)], Some(&run))?)?;
        let append = desk.effect(&key, &[ending], None)?;
        let record = desk.write(&append)?;
        same(&record.run_id.as_deref(), &Some(run.as_str()), "the effect's run")?;
        wanted.push(format!("{key}/3"));
    }
    same(&desk.woken(&run)?, &wanted, "after three settles")?;
    let found = desk.load(&run)?;
    for wakeup in &found.wakeups {
        same(&(wakeup.count, wakeup.since_seq), &(0, 0), "its count")?;
        same(&(wakeup.due <= found.now), &true, "it is due at once")?;
    }
    // A person decides; two events at once are one wakeup, of the last.
    let key = desk.key(&run, "m")?;
    let decided = Event::Resolved(Resolved {
        decision: ProbeAnswer::Committed,
        by: "oncall@bastion".to_owned(),
        reason: "looked".to_owned(),
        probe: false,
        looked_at: 3,
    });
    desk.write(&desk.effect(&key, &[decided], None)?)?;
    same(&desk.woken(&run)?.contains(&format!("{key}/4")), &true, "after a decision")?;
    same(&desk.taken_of(&run)?.len(), &4, "all of them are handed out")
}

fn in_flight(store: &dyn Store) -> Result<(), String> {
    // WFL-10
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let (key, now) = (desk.key(&run, "a")?, desk.now()?);
    for event in [reserved(1, now), began(now), renewed(now)] {
        desk.write(&desk.effect(&key, &[event], Some(&run))?)?;
    }
    same(&desk.woken(&run)?, &Vec::new(), "wakeups")
}

fn no_run(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let (run, now) = (desk.started("r")?.id, desk.now()?);
    let none = desk.run("none")?;
    let whole = [reserved(1, now), began(now), committed()];
    desk.write(&desk.effect(&desk.key(&run, "a")?, &whole, None)?)?;
    desk.write(&desk.effect(&desk.key(&none, "a")?, &whole, Some(&none))?)?;
    same(&desk.woken(&run)?, &Vec::new(), "wakeups")?;
    same(&desk.woken(&none)?, &Vec::new(), "wakeups of what is not there")
}

fn refused_wakes_nobody(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let (key, now) = (desk.key(&run, "a")?, desk.now()?);
    desk.write(&desk.effect(&key, &[reserved(1, now)], Some(&run))?)?;
    let mut stale = desk.effect(&key, &[began(now), committed()], None)?;
    if let Some(found) = &mut stale.found {
        found.write_id = WriteId(draw()?);
    }
    ended(desk.store.append(&stale, WITHIN), &End::Refused)?;
    same(&desk.woken(&run)?, &Vec::new(), "wakeups")
}

fn together(store: &dyn Store) -> Result<(), String> {
    // WFL-10: whether or not others of the group are of no run, are refused, or go on.
    let desk = Desk::new(store)?;
    let (run, other) = (desk.started("r")?.id, desk.started("other")?.id);
    let now = desk.now()?;
    let whole = [reserved(1, now), began(now), committed()];
    let mut group = Vec::new();
    for (node, of) in [("a", Some(&run)), ("b", Some(&other)), ("c", None), ("d", Some(&run))] {
        group.push(desk.effect(&desk.key(&run, node)?, &whole, of)?);
    }
    group.push(desk.effect(&desk.key(&run, "e")?, &whole[..2], Some(&run))?);
    let stale = desk.effect(&desk.key(&run, "f")?, &whole, Some(&run))?;
    desk.write(&desk.effect(&desk.key(&run, "f")?, &whole[..1], Some(&run))?)?;
    group.push(stale);
    let dispatch = desk.dispatch_of(&run, "g")?;
    let mut held = desk.effect(&desk.key(&run, "g")?, &whole[..1], Some(&run))?;
    held.dispatch = Some(dispatch.clone());
    let mut never = desk.effect(&desk.key(&run, "h")?, &whole[..1], Some(&run))?;
    never.dispatch = Some(DispatchRef { put_id: WriteId(draw()?), ..dispatch });
    let ends = |group: &[Append]| {
        let group: Vec<&Append> = group.iter().collect();
        desk.store.append_many(&group, WITHIN)
    };
    let landed = |count: usize| vec![End::Landed; count];
    same(&ends(&group), &[landed(5), vec![End::Refused]].concat(), "the group's ends")?;
    let keys = |nodes: &[&str]| nodes.iter().map(|node| format!("{run}/{node}/3")).collect();
    same(&desk.woken(&run)?, &keys(&["a", "d"]), "the run")?;
    same(&desk.woken(&other)?, &keys(&["b"]), "the other")?;
    // Reserves by dispatches, in one group with others.
    let more = desk.effect(&desk.key(&run, "i")?, &whole, Some(&run))?;
    let wanted = vec![End::Landed, End::Refused, End::Landed];
    same(&ends(&[held, never, more]), &wanted, "with dispatches")?;
    same(&desk.woken(&run)?, &keys(&["a", "d", "i"]), "the run then")
}

fn held_to_its_dispatch(store: &dyn Store) -> Result<(), String> {
    // WFL-9
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let (key, now) = (desk.key(&run, "a")?, desk.now()?);
    let old = desk.dispatch_of(&run, "a")?;
    let new = desk.dispatch_of(&run, "a")?;
    let mut reserve = desk.effect(&key, &[reserved(1, now)], Some(&run))?;
    reserve.dispatch = Some(old);
    ended(desk.store.append(&reserve, WITHIN), &End::Refused)?;
    reserve.dispatch = Some(new.clone());
    ended(desk.store.append(&reserve, WITHIN), &End::Landed)?;
    same(&desk.load(&run)?.dispatches.len(), &1, "the dispatch stays")?;
    // It goes on without it, and an update is held to it as well.
    desk.write(&desk.effect(&key, &[began(now), failed(FailedBy::OwnWord)], None)?)?;
    let mut tick = desk.append(&run, &[noted("settled")])?;
    tick.dispatches_deleted = vec![Taken { id: new.clone(), unstarted: None }];
    desk.land(&tick)?;
    let mut again = desk.effect(&key, &[reserved(2, now)], Some(&run))?;
    again.dispatch = Some(new);
    ended(desk.store.append(&again, WITHIN), &End::Refused)?;
    let history = desk.store.history(&key, 1, WITHIN).map_err(|error| error.to_string())?;
    same(&history.len(), &3, "events")
}

fn withdrawn(store: &dyn Store) -> Result<(), String> {
    // WFL-9
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let (key, now) = (desk.key(&run, "a")?, desk.now()?);
    let id = desk.dispatch_of(&run, "a")?;
    let withdraw = |expected: Option<u64>| {
        let mut tick = desk.append(&run, &[blocked("withdrawn")])?;
        tick.dispatches_deleted =
            vec![Taken { id: id.clone(), unstarted: Some((key.clone(), expected)) }];
        Ok::<_, String>(tick)
    };
    let in_time = withdraw(None)?;
    desk.refused(&withdraw(Some(1))?)?;
    let mut reserve = desk.effect(&key, &[reserved(1, now)], Some(&run))?;
    reserve.dispatch = Some(id.clone());
    ended(desk.store.append(&reserve, WITHIN), &End::Landed)?;
    desk.refused(&in_time)?;
    same(&desk.load(&run)?.dispatches.len(), &1, "it is still there")?;
    same(&desk.history(&run)?.len(), &2, "events of the run")?;
    // Where it stands as it was expected, it is withdrawn.
    desk.land(&withdraw(Some(1))?)?;
    same(&desk.load(&run)?.dispatches, &Vec::new(), "withdrawn")
}

fn loaded(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let kept = |stream, text: &[u8]| Kept {
        attempt: 1,
        stream,
        captured: Captured {
            head: text.to_vec(),
            tail: Vec::new(),
            bytes: u64::try_from(text.len()).unwrap_or(0),
            whole: true,
        },
    };
    let decided = Event::Resolved(Resolved {
        decision: ProbeAnswer::Committed,
        by: "oncall@bastion".to_owned(),
        reason: "looked".to_owned(),
        probe: false,
        looked_at: 3,
    });
    let start = [reserved(1, now), began(now)];
    let mut records = Vec::new();
    for (node, events, outputs) in [
        (
            "a-own",
            vec![committed()],
            vec![kept(Stream::Stdout, b"own"), kept(Stream::Stderr, b"e")],
        ),
        (
            "b-stated",
            vec![ambiguated(Cause::Exit), decided.clone()],
            vec![kept(Stream::Stdout, b"own"), kept(Stream::Stated, b"stated")],
        ),
        ("c-unstated", vec![ambiguated(Cause::Exit), decided], vec![kept(Stream::Stdout, b"own")]),
        ("d-failed", vec![failed(FailedBy::OwnWord)], vec![kept(Stream::Stdout, b"own")]),
        ("e-silent", vec![committed()], Vec::new()),
    ] {
        let key = desk.key(&run, node)?;
        let mut append = desk.effect(&key, &[&start[..], &events].concat(), Some(&run))?;
        append.outputs = outputs;
        records.push(desk.write(&append)?);
    }
    let mut keys: Vec<Key> = records.iter().map(|record| record.key.clone()).collect();
    keys.push(desk.key(&run, "never")?);
    let ask = |outputs: &[Key]| {
        desk.runs.load_effects(&keys, outputs, WITHIN).map_err(|error| error.to_string())
    };
    let mut found = ask(&keys)?;
    found.records.sort_by(|one, other| one.key.cmp(&other.key));
    same(&found.records, &records, "the records")?;
    found.outputs.sort_by(|one, other| one.0.cmp(&other.0));
    let outputs: Vec<&[u8]> =
        found.outputs.iter().map(|(_, captured)| captured.head.as_slice()).collect();
    same(&outputs, &vec![&b"own"[..], b"stated"], "the outputs")?;
    same(&(found.now >= now), &true, "the clock")?;
    same(&ask(&[])?.outputs, &Vec::new(), "no outputs")?;
    let none = desk.runs.load_effects(&[], &[], WITHIN).map_err(|error| error.to_string())?;
    same(&none.records, &Vec::new(), "no records")
}
