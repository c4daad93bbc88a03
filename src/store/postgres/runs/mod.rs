//! Workflow runs on a server (WFL clauses).
//!
//! | file | what it does |
//! |---|---|
//! | `write` | what is written |
//! | `effect` | what an effect's append does for its run |
//! | `read` | what is read |
//! | `queue` | claims of wakeups and dispatches |
//! | `forget` | runs that have ended, taken away |
mod effect;
mod forget;
mod queue;
mod read;
mod write;

use std::time::Duration;

use uuid::Uuid;

use self::queue::Claiming;
use self::read::{Listing, Reading};
use super::error::{Fault, code};
use super::link::Link;
use super::store::{Postgres, Subject};
use super::transaction::Deadline;
use super::write::{Try, Writing};
use crate::plan::effect::WriteId;
use crate::plan::key::Key;
use crate::plan::workflow::{
    Dispatch, DispatchRef, InboxItem, RunAppend, RunHistoryRow, RunId, Wakeup,
};
use crate::store::columns::check_runs;
use crate::store::runs::columns::{RunColumns, WakeupRow, cannot_be_stored};
use crate::store::runs::turns::{Round, Turns};
use crate::store::runs::{
    Claimed, EffectsFound, ListedRun, RunAsRead, RunFilter, RunFound, RunReread, Runs, Take, Woken,
};
use crate::store::{CouldNot, End, Flow};

pub use self::effect::{OfRun, of_effect, wake_all};

impl Postgres {
    fn reading(&self, deadline: Deadline) -> Reading<'_> {
        Reading { names: &self.site.names, store_id: self.identity.store_id, deadline }
    }

    fn read_runs<T>(
        &self,
        within: Duration,
        mut what: impl FnMut(&Link, &Reading<'_>) -> Result<T, Fault>,
    ) -> Result<T, CouldNot> {
        let deadline = Deadline::new(within);
        let reading = self.reading(deadline);
        self.read(deadline, |link| what(link, &reading).map_err(|fault| self.older(fault)))
    }

    /// What is not there, in a schema that is older than runs are, is not there for that reason.
    fn older(&self, fault: Fault) -> Fault {
        if code(&fault) != Some("42P01") {
            return fault;
        }
        let found = i64::from(self.identity.schema_version);
        let names = &self.site.names;
        match check_runs(found, &names.place, &names.upgrade()) {
            Ok(()) => fault,
            Err(error) => error.into(),
        }
    }

    /// A write that is nobody's to settle: it is tried again as it is.
    fn write_runs(
        &self,
        within: Duration,
        attempt: impl FnOnce(&Link, &Writing<'_>) -> Try,
    ) -> End {
        self.write_once(within, |link, writing| self.told(attempt(link, writing)))
    }

    fn told(&self, tried: Try) -> Try {
        match tried {
            Try::NotCommitted(fault) => Try::NotCommitted(self.older(fault)),
            other @ (Try::Landed | Try::Refused | Try::Aborted(_) | Try::Unknown(_)) => other,
        }
    }

    fn claim<T>(
        &self,
        take: &Take<'_>,
        within: Duration,
        round_of: fn(&mut Turns) -> &mut Round,
        claim: fn(&Link, &mut Round, &Claiming<'_>) -> Result<Claimed<T>, Fault>,
    ) -> Result<Claimed<T>, CouldNot> {
        let deadline = Deadline::new(within);
        let names = &self.site.names;
        let claiming = Claiming { names, store_id: self.identity.store_id, take, deadline };
        let mut round = round_of(&mut self.session().turns).clone();
        let claimed = self.read(deadline, |link| {
            claim(link, &mut round, &claiming).map_err(|fault| self.older(fault))
        })?;
        *round_of(&mut self.session().turns) = round;
        Ok(claimed)
    }
}

impl Runs for Postgres {
    fn load_run(&self, run: &RunId, within: Duration) -> Result<RunFound, CouldNot> {
        self.read_runs(within, |link, reading| reading.load(link, run))
    }

    fn load_effects(
        &self,
        keys: &[Key],
        with_output: &[Key],
        within: Duration,
    ) -> Result<EffectsFound, CouldNot> {
        self.read_runs(within, |link, reading| reading.effects(link, keys, with_output))
    }

    fn append_run(&self, append: &RunAppend, within: Duration) -> End {
        let columns = match RunColumns::of(append) {
            Ok(columns) => columns,
            Err(error) => return End::NotCommitted(error),
        };
        let stop = self.before_run_commit.as_ref().map(|stop| || stop(append));
        let stop = stop.as_ref().map(|stop| stop as &dyn Fn());
        let about = Subject::Run(append.next.id.clone());
        self.write_on(about, append.next.write_id, within, |link, writing| {
            let (tried, origin) = write::append(link, append, &columns, writing, stop);
            (self.told(tried), origin)
        })
    }

    fn reread_run(
        &self,
        run: &RunId,
        revision: u64,
        within: Duration,
    ) -> Result<RunReread, CouldNot> {
        self.reread_on(&Subject::Run(run.clone()), within, |link, deadline| {
            self.reading(deadline).reread(link, run, revision).map_err(|fault| self.older(fault))
        })
    }

    fn list_runs(
        &self,
        filter: &RunFilter,
        each: &mut dyn FnMut(ListedRun) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let mut listing = Listing::new(filter);
        loop {
            // No lock of ours is held while the caller looks at a page.
            let page = self.read_runs(within, |link, reading| listing.next_page(link, reading))?;
            if page.is_empty() {
                return Ok(());
            }
            for listed in page {
                match each(listed) {
                    Flow::Continue => {}
                    Flow::Stop => return Ok(()),
                }
            }
        }
    }

    fn run_history(
        &self,
        run: &RunId,
        from: u64,
        within: Duration,
    ) -> Result<Vec<RunHistoryRow>, CouldNot> {
        self.read_runs(within, |link, reading| reading.history(link, run, from))
    }

    fn put_inbox(&self, item: &InboxItem, within: Duration) -> End {
        self.write_runs(within, |link, writing| write::put_inbox(link, item, writing))
    }

    fn claim_wakeups(&self, take: &Take<'_>, within: Duration) -> Result<Claimed<Woken>, CouldNot> {
        self.claim(take, within, |turns| &mut turns.wakeups, queue::claim_wakeups)
    }

    fn finish_wakeups(&self, wakeups: &[Wakeup], within: Duration) -> End {
        let Some(mark) = wakeups.first().map(|wakeup| mark(wakeup.put_id)) else {
            return End::Landed;
        };
        self.write_runs(within, |link, writing| write::finish(link, wakeups, None, &mark, writing))
    }

    fn requeue(&self, wakeups: &[Wakeup], next: &Wakeup, within: Duration) -> End {
        let row = match WakeupRow::of(next) {
            Ok(row) => row,
            Err(malformed) => return End::NotCommitted(cannot_be_stored(malformed)),
        };
        self.write_runs(within, |link, writing| {
            write::finish(link, wakeups, Some(&row), &mark(next.put_id), writing)
        })
    }

    fn claim_dispatches(
        &self,
        take: &Take<'_>,
        within: Duration,
    ) -> Result<Claimed<Dispatch>, CouldNot> {
        self.claim(take, within, |turns| &mut turns.dispatches, queue::claim_dispatches)
    }

    fn postpone_dispatch(
        &self,
        dispatch: &DispatchRef,
        claim: Uuid,
        after: Duration,
        within: Duration,
    ) -> End {
        self.write_runs(within, |link, writing| {
            write::postpone(link, dispatch, claim, after, writing)
        })
    }

    fn forget_runs(&self, runs: &[RunAsRead], within: Duration) -> End {
        let Some(mark) = runs.first().map(|run| mark(run.write_id)) else {
            return End::Landed;
        };
        self.write_runs(within, |link, writing| forget::forget(link, runs, &mark, writing))
    }
}

/// What BEGIN sets, and the statement behind it looks for (PGS-2).
fn mark(id: WriteId) -> String {
    id.0.simple().to_string()
}
