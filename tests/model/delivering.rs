//! A process begins: it delivers what is in its spool first (EXE-25).
use ctrlrun::plan::attempt::Undelivered;
use ctrlrun::plan::effect::{Command, OutcomeId};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::protocol::{Done, Handle};
use ctrlrun::plan::retry::Budget;

use crate::laws;
use crate::step::{Taking, Violation};
use crate::tally;
use crate::world::{Asked, Delivering, Opened, PATIENCE, Work, Writing, key, run_name};

impl Taking<'_> {
    pub fn begins(&mut self, process: usize, key_at: usize, asked: Asked) -> Result<(), Violation> {
        let host = self.host(process);
        let mine = |(at, outcome): &(usize, Undelivered)| (*at == host).then(|| outcome.clone());
        let mut waiting: Vec<_> = self.world.rest.spool.iter().filter_map(mine).collect();
        waiting.reverse();
        let it = self.world.processes[process].edit();
        it.runs += 1;
        it.drawn = 0;
        it.memory = Default::default();
        let opened = Opened { floor: self.world.rows[key_at].floor, now: self.world.now() };
        self.deliver_next(process, key_at, waiting, asked, opened)
    }

    /// Commands that write deliver what is in the spool first (EXE-25).
    pub fn deliver_next(
        &mut self,
        process: usize,
        run_key: usize,
        mut left: Vec<Undelivered>,
        asked: Asked,
        opened: Opened,
    ) -> Result<(), Violation> {
        let at = self.world.moment();
        let Some(outcome) = left.pop() else {
            return self.runs(process, run_key, asked, opened);
        };
        let budget = Budget::new(1_000, at.plus(PATIENCE), PATIENCE);
        let command = Command::Settle(outcome.settle.clone());
        let handle = Handle::new(outcome.key.clone(), command, StreamState::Any, budget)
            .with_outputs(outcome.outputs.clone());
        let about = usize::from(outcome.key != key(0));
        let it = self.world.processes[process].edit();
        let name = run_name(process, it.runs);
        let write = Writing::new(about, handle, name, it.drawn, at);
        let key = run_key;
        it.work =
            Work::Delivering(Box::new(Delivering { write, outcome, left, asked, key, opened }));
        Ok(())
    }

    pub fn delivered(
        &mut self,
        process: usize,
        it: Delivering,
        done: &Done,
    ) -> Result<(), Violation> {
        laws::told(self, &it.write, done)?;
        let Delivering { outcome, left, asked, key: run_key, opened, .. } = it;
        let gone = tally::delivery(&outcome, done);
        self.saw(gone.name());
        if gone == tally::Gone::Forgotten {
            // By this word nothing had happened, and there is nothing that it could be told of.
            let rest = self.world.rest.edit();
            rest.known.retain(|known| known.outcome != outcome.settle.outcome_id);
        }
        if gone.may_discard() {
            self.unspool(process, outcome.settle.outcome_id);
            return self.deliver_next(process, run_key, left, asked, opened);
        }
        if outcome.key == key(run_key) {
            // It stops its own key (69).
            self.saw("a run that an undelivered outcome stops");
            return Ok(());
        }
        self.deliver_next(process, run_key, left, asked, opened)
    }

    pub fn unspool(&mut self, process: usize, outcome: OutcomeId) {
        let host = self.host(process);
        let spool = &mut self.world.rest.edit().spool;
        spool.retain(|(at, kept)| *at != host || kept.settle.outcome_id != outcome);
    }

    pub fn host(&self, process: usize) -> usize {
        if self.bounds.one_host { 0 } else { process }
    }
}
