//! The inbox: what is wanted of a run waits there for a tick (WFL-7).
use super::{Check, Desk, WITHIN, blocked, ended, noted, same, signal};
use crate::store::{End, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("what is put into an inbox is there, and wakes the run", put),
    ("an item that is put twice is there once", put_twice),
    ("nothing is put into the inbox of a run that is not there", no_run),
    ("a tick consumes what it has seen, and nothing else", consumed),
    ("a tick that is refused consumes nothing", refused),
];

fn put(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let item = signal(&run, "\u{e9} 'x'\u{0}\n")?;
    ended(desk.runs.put_inbox(&item, WITHIN), &End::Landed)?;
    let found = desk.load(&run)?;
    let [there] = found.inbox.as_slice() else { return Err(format!("{:?}", found.inbox)) };
    same(&(there.id, &there.run, &there.wish), &(item.id, &run, &item.wish), "the item")?;
    same(&(there.at <= found.now), &true, "its time is the store's")?;
    let [woken] = found.wakeups.as_slice() else { return Err(format!("{:?}", found.wakeups)) };
    same(&woken.key, &format!("inbox/{}", item.id.0), "its wakeup")?;
    same(&(woken.count, woken.since_seq), &(0, 0), "its count")?;
    same(&desk.taken_of(&run)?, &vec![woken.key.clone()], "it is due")
}

fn put_twice(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let item = signal(&run, "x")?;
    for _ in 0..2 {
        ended(desk.runs.put_inbox(&item, WITHIN), &End::Landed)?;
    }
    let found = desk.load(&run)?;
    same(&(found.inbox.len(), found.wakeups.len()), &(1, 1), "items and wakeups")
}

fn no_run(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.run("none")?;
    ended(desk.runs.put_inbox(&signal(&run, "x")?, WITHIN), &End::Refused)?;
    same(&desk.load(&run)?.inbox, &Vec::new(), "the inbox")
}

fn consumed(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let (seen, late) = (signal(&run, "seen")?, signal(&run, "late")?);
    ended(desk.runs.put_inbox(&seen, WITHIN), &End::Landed)?;
    let mut tick = desk.append(&run, &[noted("seen")])?;
    ended(desk.runs.put_inbox(&late, WITHIN), &End::Landed)?;
    tick.consumed = vec![seen.id];
    let found = desk.load(&run)?;
    let wakeups = found.wakeups.iter().filter(|wakeup| wakeup.key.contains(&seen.id.0.to_string()));
    tick.wakeups_deleted = wakeups.map(|wakeup| (wakeup.key.clone(), wakeup.put_id)).collect();
    desk.land(&tick)?;
    let found = desk.load(&run)?;
    same(&found.inbox.iter().map(|item| item.id).collect(), &vec![late.id], "what is left")?;
    same(&found.wakeups.len(), &1, "the wakeup of what is left")
}

fn refused(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let item = signal(&run, "x")?;
    ended(desk.runs.put_inbox(&item, WITHIN), &End::Landed)?;
    let mut tick = desk.append(&run, &[noted("x")])?;
    let wakeups = desk.load(&run)?.wakeups;
    tick.consumed = vec![item.id];
    tick.wakeups_deleted =
        wakeups.iter().map(|wakeup| (wakeup.key.clone(), wakeup.put_id)).collect();
    desk.land(&desk.append(&run, &[blocked("faster")])?)?;
    desk.refused(&tick)?;
    let found = desk.load(&run)?;
    same(&(found.inbox.len(), found.wakeups), &(1, wakeups), "what is left")
}
