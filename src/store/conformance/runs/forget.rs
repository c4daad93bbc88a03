//! Runs that have ended, taken away (OPS-14).
use super::{
    Check, Desk, HOLD, Run, RunEvent, Status, Tier, WITHIN, dispatch, ended, noted, same, signal,
    start,
};
use crate::store::runs::RunAsRead;
use crate::store::{End, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a run that has ended is forgotten with all that is its own", whole),
    ("of runs that are forgotten together all go or none", all_or_none),
    ("a run of a name that was forgotten begins anew", anew),
];

impl Desk<'_> {
    /// A run that stands so, for which things wait.
    fn standing(&self, name: &str, status: Status) -> Result<Run, String> {
        let run = self.started(name)?.id;
        ended(self.runs.put_inbox(&signal(&run, "p")?, WITHIN), &End::Landed)?;
        self.put(&self.wakeup(&run, "later", self.now()?.plus(HOLD))?)?;
        let stands = RunEvent::StatusChanged { status, reason: None };
        let mut append = self.append(&run, &[stands])?;
        let due = append.next.updated_at.plus(HOLD);
        append.dispatches_put = vec![dispatch(&run, "a", append.next.write_id, due)?];
        self.land(&append)?;
        Ok(append.next)
    }

    fn forget(&self, runs: &[&Run]) -> Result<End, String> {
        let runs: Vec<RunAsRead> = runs.iter().map(|run| RunAsRead::of(run)).collect();
        Ok(self.runs.forget_runs(&runs, WITHIN))
    }

    /// What is left of a run: its row, its events, what waits for it.
    fn left(&self, run: &Run) -> Result<(bool, usize, usize), String> {
        let found = self.load(&run.id)?;
        let waits = found.inbox.len() + found.dispatches.len() + found.wakeups.len();
        Ok((found.run.is_some(), self.history(&run.id)?.len(), waits))
    }
}

fn whole(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let gone = desk.standing("gone", Status::Succeeded)?;
    let stays = desk.standing("stays", Status::Succeeded)?;
    ended(desk.forget(&[&gone])?, &End::Landed)?;
    same(&desk.left(&gone)?, &(false, 0, 0), "what is left of it")?;
    same(&desk.left(&stays)?, &(true, 2, 3), "what is left of another")?;
    // Nothing waits for later under its name, either.
    desk.land(&desk.append(&gone.id, &[start("conformance", Tier::Normal)?])?)?;
    same(&desk.left(&gone)?, &(true, 1, 0), "what a new one finds")?;
    ended(desk.forget(&[])?, &End::Landed)
}

fn all_or_none(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let one = desk.standing("one", Status::Cancelled)?;
    for other in [Status::Running, Status::Blocked, Status::Cancelling, Status::Failing] {
        let other = desk.standing(other.name(), other)?;
        ended(desk.forget(&[&one, &other])?, &End::Refused)?;
        same(&desk.left(&other)?, &(true, 2, 3), "what is left of one that goes on")?;
    }
    let moved = desk.standing("moved", Status::Failed)?;
    desk.land(&desk.append(&moved.id, &[noted("late")])?)?;
    ended(desk.forget(&[&moved, &one])?, &End::Refused)?;
    same(&desk.left(&moved)?, &(true, 3, 3), "what is left of one that has moved")?;
    same(&desk.left(&one)?, &(true, 2, 3), "what is left of the other")?;
    let now = desk.row(&moved.id)?;
    ended(desk.forget(&[&now, &one])?, &End::Landed)?;
    same(&desk.left(&one)?, &(false, 0, 0), "what is left then")
}

fn anew(store: &dyn Store) -> Result<(), String> {
    // A tick on the row of the earlier life is refused, though the revision is the same.
    let desk = Desk::new(store)?;
    let first = desk.standing("r", Status::Succeeded)?;
    let late = desk.append(&first.id, &[noted("late")])?;
    ended(desk.forget(&[&first])?, &End::Landed)?;
    desk.refused(&late)?;
    let second = desk.standing("r", Status::Succeeded)?;
    same(&second.revision, &first.revision, "the revision")?;
    desk.refused(&late)?;
    ended(desk.forget(&[&first])?, &End::Refused)?;
    same(&desk.row(&second.id)?, &second, "the row")
}
