//! Workflow runs in the embedded store (WFL clauses).
//!
//! | file | what it does |
//! |---|---|
//! | `write` | what is written, and what an effect's append does for its run |
//! | `read` | what is read |
//! | `queue` | claims of wakeups and dispatches |
//! | `forget` | runs that have ended, taken away |
mod forget;
mod queue;
mod read;
mod write;

use std::time::Duration;

use rusqlite::Connection;
use uuid::Uuid;

use self::queue::{Claiming, DISPATCHES, Queue, WAKEUPS};
use self::read::{Listing, Reading};
use super::error::Fault;
use super::{Sqlite, now};
use crate::plan::effect::WriteId;
use crate::plan::key::Key;
use crate::plan::workflow::{
    Dispatch, DispatchRef, InboxItem, RunAppend, RunHistoryRow, RunId, Wakeup,
};
use crate::store::runs::columns::{RunColumns, WakeupRow, cannot_be_stored};
use crate::store::runs::turns::{Round, Turns};
use crate::store::runs::{
    Claimed, EffectsFound, ListedRun, RunAsRead, RunFilter, RunFound, RunReread, Runs, Take, Woken,
};
use crate::store::{CouldNot, End, Flow};

pub use self::write::{still_dispatched, wake};

/// A write that cannot be looked for afterwards needs no name: it is tried again as it is.
const UNNAMED: Option<WriteId> = None;

impl Sqlite {
    /// Performs `body` in one transaction.
    fn write_runs(
        &self,
        within: Duration,
        write_id: Option<WriteId>,
        stop: Option<&dyn Fn()>,
        body: impl FnOnce(&Connection) -> Result<bool, Fault>,
    ) -> End {
        let mut session = self.session(within);
        self.write_on(&mut session, write_id, |connection, deadline| {
            write::transact(connection, deadline, stop, || body(connection))
        })
    }

    /// Looks first, without the lock of all writers: most questions find nothing due.
    fn claim<T>(
        &self,
        take: &Take<'_>,
        within: Duration,
        queue: Queue,
        round_of: fn(&mut Turns) -> &mut Round,
        claim: fn(&Connection, &mut Round, &Claiming<'_>) -> Result<Vec<T>, Fault>,
    ) -> Result<Claimed<T>, CouldNot> {
        let mut session = self.session(within);
        let next_due = self.read(&mut session, |connection| {
            write::stands(connection)?;
            queue::next_due(connection, queue)
        })?;
        let claiming = Claiming { take, now: now() };
        let mut claimed = Claimed { taken: Vec::new(), now: claiming.now, next_due };
        if claimed.next_due.is_none_or(|due| due > claiming.now) {
            return Ok(claimed);
        }
        // A copy: should the claim fail, nobody was served.
        let mut round = round_of(&mut session.turns).clone();
        let end = self.write_on(&mut session, UNNAMED, |connection, deadline| {
            write::transact(connection, deadline, None, || {
                claimed.taken = claim(connection, &mut round, &claiming)?;
                claimed.next_due = queue::next_due(connection, queue)?;
                Ok(true)
            })
        });
        match end {
            End::Landed | End::Refused => {
                *round_of(&mut session.turns) = round;
                Ok(claimed)
            }
            End::NotCommitted(error) | End::Unknown(error) => Err(error),
        }
    }

    fn reading<'a>(&'a self, connection: &'a Connection, run: &'a RunId) -> Reading<'a> {
        Reading { connection, place: &self.identity.place, run }
    }
}

impl Runs for Sqlite {
    fn load_run(&self, run: &RunId, within: Duration) -> Result<RunFound, CouldNot> {
        let mut session = self.session(within);
        self.evident(
            &mut session,
            |connection| self.reading(connection, run).load(now),
            |found| found.run.iter().map(|run| run.write_id).collect(),
        )
    }

    fn load_effects(
        &self,
        keys: &[Key],
        with_output: &[Key],
        within: Duration,
    ) -> Result<EffectsFound, CouldNot> {
        let mut session = self.session(within);
        self.evident(
            &mut session,
            |connection| read::effects(connection, keys, with_output, now),
            |found| found.records.iter().map(|record| record.write_id).collect(),
        )
    }

    fn append_run(&self, append: &RunAppend, within: Duration) -> End {
        let columns = match RunColumns::of(append) {
            Ok(columns) => columns,
            Err(error) => return End::NotCommitted(error),
        };
        let stop = self.before_run_commit.as_ref().map(|stop| || stop(append));
        let stop = stop.as_ref().map(|stop| stop as &dyn Fn());
        let write_id = Some(append.next.write_id);
        self.write_runs(within, write_id, stop, |connection| {
            write::append(connection, append, &columns)
        })
    }

    fn reread_run(
        &self,
        run: &RunId,
        revision: u64,
        within: Duration,
    ) -> Result<RunReread, CouldNot> {
        let mut session = self.session(within);
        self.renew(&mut session)?;
        self.evident(
            &mut session,
            |connection| self.reading(connection, run).reread(revision),
            |found| {
                let of_row = found.run.iter().map(|run| run.write_id);
                of_row.chain(found.event.iter().map(|event| event.write_id)).collect()
            },
        )
    }

    fn list_runs(
        &self,
        filter: &RunFilter,
        each: &mut dyn FnMut(ListedRun) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        let mut listing = Listing::new(filter);
        loop {
            let page = {
                let mut session = self.session(within);
                self.read(&mut session, |connection| listing.next_page(connection, now()))?
            };
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
        let mut session = self.session(within);
        self.read(&mut session, |connection| {
            write::stands(connection)?;
            self.reading(connection, run).history(from, usize::MAX)
        })
    }

    fn put_inbox(&self, item: &InboxItem, within: Duration) -> End {
        self.write_runs(within, UNNAMED, None, |connection| {
            write::put_inbox(connection, item, now())
        })
    }

    fn claim_wakeups(&self, take: &Take<'_>, within: Duration) -> Result<Claimed<Woken>, CouldNot> {
        self.claim(take, within, WAKEUPS, |turns| &mut turns.wakeups, queue::claim_wakeups)
    }

    fn finish_wakeups(&self, wakeups: &[Wakeup], within: Duration) -> End {
        self.write_runs(within, UNNAMED, None, |connection| {
            write::finish(connection, wakeups, None)
        })
    }

    fn requeue(&self, wakeups: &[Wakeup], next: &Wakeup, within: Duration) -> End {
        let next = match WakeupRow::of(next) {
            Ok(next) => next,
            Err(malformed) => return End::NotCommitted(cannot_be_stored(malformed)),
        };
        self.write_runs(within, UNNAMED, None, |connection| {
            write::finish(connection, wakeups, Some(&next))
        })
    }

    fn claim_dispatches(
        &self,
        take: &Take<'_>,
        within: Duration,
    ) -> Result<Claimed<Dispatch>, CouldNot> {
        self.claim(take, within, DISPATCHES, |turns| &mut turns.dispatches, queue::claim_dispatches)
    }

    fn postpone_dispatch(
        &self,
        dispatch: &DispatchRef,
        claim: Uuid,
        after: Duration,
        within: Duration,
    ) -> End {
        self.write_runs(within, UNNAMED, None, |connection| {
            write::postpone(connection, dispatch, claim.as_bytes(), now().plus(after))
        })
    }

    fn forget_runs(&self, runs: &[RunAsRead], within: Duration) -> End {
        self.write_runs(within, UNNAMED, None, |connection| forget::forget(connection, runs))
    }
}
