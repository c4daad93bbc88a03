//! Wakeups: put, claimed, finished, handed out again (WFL-11, WFL-12).
use std::time::Duration;

use super::{Check, Desk, HOLD, Tier, WITHIN, WriteId, draw, ended, keys, noted, same};
use crate::store::runs::Take;
use crate::store::{End, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a wakeup is handed out when it is due, and not before", due),
    ("a claimed wakeup is handed out again after its hold, and not before", again),
    ("a finished wakeup is gone", finished),
    ("with a wakeup go the others of its run", others),
    ("a wakeup that is put again under its key is another", put_again),
    ("a requeue takes away and puts", requeue),
    ("nothing is put for a run that is not there", no_run),
    ("a tick puts wakeups and takes away those it has seen", by_a_tick),
    ("what waits is told with its time", next_due),
    ("a load sees wakeups that are due, claimed or not", seen),
];

const SECOND: Duration = Duration::from_secs(1);

fn due(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    desk.put(&desk.wakeup(&run, "later", now.plus(HOLD))?)?;
    let soon = desk.wakeup(&run, "soon", now.plus(Duration::from_millis(300)))?;
    desk.put(&soon)?;
    let mut claimed = desk.claim_of(&run, HOLD)?;
    if claimed.now < soon.due {
        same(&keys(&claimed), &Vec::new(), "before its time")?;
    }
    desk.until("it is due", || {
        if claimed.taken.is_empty() {
            claimed = desk.claim_of(&run, HOLD)?;
        }
        Ok(!claimed.taken.is_empty())
    })?;
    same(&(claimed.now >= soon.due), &true, "the clock when it was handed out")?;
    let [woken] = claimed.taken.as_slice() else { return Err(format!("{:?}", claimed.taken)) };
    same(&woken.wakeups, &vec![soon], "what was handed out")?;
    same(&(&woken.run, woken.tier), &(&run, Tier::Normal), "its run")?;
    same(&woken.claim.until, &claimed.now.plus(HOLD), "until")
}

fn again(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let wakeup = desk.wakeup(&run, "w", desk.now()?)?;
    desk.put(&wakeup)?;
    let first = desk.claim_of(&run, Duration::from_millis(400))?;
    same(&keys(&first), &vec![wakeup.key.clone()], "the first claim")?;
    let until = first.taken.first().map(|woken| woken.claim.until).ok_or("no claim")?;
    let mut second = desk.claim_of(&run, HOLD)?;
    desk.until("it is handed out again", || {
        if second.taken.is_empty() {
            second = desk.claim_of(&run, HOLD)?;
        }
        Ok(!second.taken.is_empty())
    })?;
    same(&(second.now >= until), &true, "the hold had ended")?;
    same(&keys(&second), &vec![wakeup.key.clone()], "the second claim")?;
    // Whoever was late finishes it for all.
    desk.finish(&[wakeup])?;
    same(&desk.load(&run)?.wakeups, &Vec::new(), "what is left")
}

fn finished(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let (one, other) = (desk.wakeup(&run, "one", now)?, desk.wakeup(&run, "other", now)?);
    desk.put(&one)?;
    desk.put(&other)?;
    desk.finish(std::slice::from_ref(&one))?;
    same(&desk.load(&run)?.wakeups, &vec![other.clone()], "what is left")?;
    desk.finish(&[one, other])?;
    desk.finish(&[])?;
    same(&desk.load(&run)?.wakeups, &Vec::new(), "what is left then")
}

fn others(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let (run, other) = (desk.started("r")?.id, desk.started("other")?.id);
    let now = desk.now()?;
    for name in ["a", "b", "c"] {
        desk.put(&desk.wakeup(&run, name, now)?)?;
    }
    desk.put(&desk.wakeup(&run, "later", now.plus(HOLD))?)?;
    desk.put(&desk.wakeup(&other, "a", now)?)?;
    let claimed = desk.claim_of(&run, HOLD)?;
    same(&claimed.taken.len(), &1, "runs")?;
    same(&keys(&claimed).len(), &3, "wakeups")?;
    same(&desk.taken_of(&run)?, &Vec::new(), "claimed already")?;
    same(&desk.taken_of(&other)?.len(), &1, "another run's")
}

fn put_again(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let first = desk.wakeup(&run, "w", now)?;
    desk.put(&first)?;
    same(&desk.taken_of(&run)?.len(), &1, "claimed")?;
    let mut second = first.clone();
    second.put_id = WriteId(draw()?);
    second.due = now.plus(HOLD);
    second.count = 9;
    desk.put(&second)?;
    // It takes the earlier time, and whoever had the first has not this one.
    let mut wanted = second.clone();
    wanted.due = now;
    same(&desk.load(&run)?.wakeups, &vec![wanted.clone()], "what is there")?;
    desk.finish(&[first])?;
    same(&desk.load(&run)?.wakeups, &vec![wanted], "what is left")?;
    same(&desk.taken_of(&run)?.len(), &1, "it is handed out")?;
    desk.finish(&[second])?;
    same(&desk.load(&run)?.wakeups, &Vec::new(), "at the end")
}

fn requeue(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let (one, two) = (desk.wakeup(&run, "one", now)?, desk.wakeup(&run, "two", now)?);
    let next = desk.wakeup(&run, "next", now)?;
    for wakeup in [&one, &two] {
        desk.put(wakeup)?;
    }
    ended(desk.runs.requeue(&[one, two], &next, WITHIN), &End::Landed)?;
    same(&desk.load(&run)?.wakeups, &vec![next], "what waits")
}

fn no_run(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.run("none")?;
    desk.put(&desk.wakeup(&run, "w", desk.now()?)?)?;
    same(&desk.load(&run)?.wakeups, &Vec::new(), "wakeups")?;
    same(&desk.taken_of(&run)?, &Vec::new(), "claimed")
}

fn by_a_tick(store: &dyn Store) -> Result<(), String> {
    // WFL-6
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let (seen, unseen) = (desk.wakeup(&run, "seen", now)?, desk.wakeup(&run, "unseen", now)?);
    desk.put(&seen)?;
    desk.put(&unseen)?;
    let mut tick = desk.append(&run, &[noted("x")])?;
    let put = desk.wakeup(&run, "put", now)?;
    let mut not_there = desk.wakeup(&run, "not there", now)?;
    not_there.put_id = WriteId(draw()?);
    let mut replaced = unseen.clone();
    replaced.put_id = WriteId(draw()?);
    tick.wakeups_deleted =
        [&seen, &not_there, &replaced].map(|wakeup| (wakeup.key.clone(), wakeup.put_id)).to_vec();
    tick.wakeups_put = vec![put.clone()];
    desk.land(&tick)?;
    let mut left = desk.load(&run)?.wakeups;
    left.sort_by(|one, other| one.key.cmp(&other.key));
    same(&left, &vec![put, unseen], "what is left")
}

fn next_due(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    desk.put(&desk.wakeup(&run, "later", now.plus(SECOND))?)?;
    // Others may wait for an earlier time, but the answer is never beyond ours.
    let told = desk.claim_of(&run, HOLD)?.next_due.ok_or("nothing waits")?;
    same(&(told <= now.plus(SECOND + SECOND)), &true, "the next time")?;
    desk.finish(&desk.all_of(&run)?)
}

fn seen(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let now = desk.now()?;
    let wakeup = desk.wakeup(&run, "w", now)?;
    desk.put(&wakeup)?;
    desk.put(&desk.wakeup(&run, "later", now.plus(HOLD))?)?;
    same(&desk.load(&run)?.wakeups, &vec![wakeup.clone()], "before it is claimed")?;
    let take = Take { only: Some(&run), limit: 1, claim: super::claim_id()?, hold: HOLD };
    desk.runs.claim_wakeups(&take, WITHIN).map_err(|error| error.to_string())?;
    same(&desk.load(&run)?.wakeups, &vec![wakeup], "when it is claimed")
}

impl Desk<'_> {
    fn all_of(&self, run: &super::RunId) -> Result<Vec<super::Wakeup>, String> {
        Ok(self.load(run)?.wakeups)
    }
}
