//! What a person and a probe do.
use ctrlrun::plan::effect::{Command, Probe, ProbeAnswer, Resolve};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::protocol::Handle;
use ctrlrun::plan::retry::Budget;

use crate::laws;
use crate::shelf::How;
use crate::step::{Taking, Violation};
use crate::world::{Fate, PATIENCE, Writing, key};

impl Taking<'_> {
    pub fn of_desk(&mut self, how: How) -> Result<(), Violation> {
        let Some(mut writing) = self.world.desk.edit().take() else {
            return Err("the model: nobody is at the desk".to_owned());
        };
        let done = self.write(None, &mut writing, how)?;
        match done {
            None => *self.world.desk.edit() = Some(writing),
            Some(done) => laws::told(self, &writing, &done)?,
        }
        Ok(())
    }

    pub fn decides(
        &mut self,
        key: usize,
        decision: Option<ProbeAnswer>,
        stale: bool,
    ) -> Result<(), Violation> {
        let revision = self.world.rows[key].record.as_ref().map_or(0, |record| record.revision);
        let looked_at = revision.saturating_sub(u64::from(stale));
        let (by, reason) = (String::new(), String::new());
        self.world.rest.edit().decisions -= 1;
        let command = match decision {
            Some(decision) => Command::Resolve(Resolve { decision, by, reason, looked_at }),
            None => Command::Reopen { by, reason, looked_at },
        };
        self.at_desk(key, command);
        Ok(())
    }

    /// A probe sees what is so: it says "not executed" where nothing has come about so far.
    pub fn probes(&mut self, key: usize, last_word: bool) -> Result<(), Violation> {
        let Some(looked_at) = self.world.rows[key].record.as_ref().map(|record| record.revision)
        else {
            return Err("the model: there is nothing to probe".to_owned());
        };
        let rest = self.world.rest.edit();
        rest.probes -= 1;
        let children = rest.children.iter_mut().filter(|child| child.key == key);
        let mut answer = ProbeAnswer::NotExecuted;
        for child in children {
            child.fate = match child.fate {
                Fate::Happened => {
                    answer = ProbeAnswer::Committed;
                    Fate::Happened
                }
                Fate::Runs if last_word => Fate::Barred,
                Fate::Stray if last_word => Fate::Over,
                fate => fate,
            };
        }
        let by = "reconcile:p".to_owned();
        let probe = Probe { answer, by, reconcile_final: last_word, looked_at };
        self.at_desk(key, Command::Probed(probe));
        Ok(())
    }

    /// Somebody looks, as a contender does, and waits for nothing.
    pub fn contends(&mut self, key: usize) -> Result<(), Violation> {
        self.world.rest.edit().decisions -= 1;
        self.at_desk(key, Command::Contend);
        Ok(())
    }

    pub fn at_desk(&mut self, key_at: usize, command: Command) {
        let at = self.world.moment();
        let budget = Budget::new(1_000, at.plus(PATIENCE), PATIENCE);
        let handle = Handle::new(key(key_at), command, StreamState::Any, budget);
        let rest = &self.world.rest;
        let name = 0xd000 | u32::from(rest.decisions) << 4 | u32::from(rest.probes);
        let writing = Writing::new(key_at, handle, name, 0, at);
        *self.world.desk.edit() = Some(writing);
    }
}
