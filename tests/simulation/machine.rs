//! The driver's host. Every process of every machine is given this one: it knows by the thread who
//! asks.
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use ctrlrun::drive::host::{Host, Process, Work};
use ctrlrun::exec::{CommandLine, NotStarted, Signals};
use ctrlrun::plan::protocol::Done;
use ctrlrun::plan::time::Moment;
use uuid::{Builder, Uuid};

use crate::turn::When;
use crate::world::World;

pub struct Machine {
    pub world: Arc<World>,
}

impl Machine {
    /// What every thing takes: a little, and at its end others may have been faster.
    fn passes(&self) {
        let long = self.world.turns.inside().draws.below(40);
        self.world.turns.pass(Duration::from_micros(long));
    }
}

impl Host for Machine {
    fn now(&self) -> Moment {
        self.passes();
        self.world.moment()
    }

    fn draw(&self) -> Uuid {
        let mut inside = self.world.turns.inside();
        let bytes = (u128::from(inside.draws.next()) << 64) | u128::from(inside.draws.next());
        Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid()
    }

    fn idle(&self, long: Duration) {
        self.world.turns.pass(long);
    }

    fn pause(&self, long: Duration, _: Option<&Signals>) -> Option<i32> {
        self.world.turns.pass(long);
        self.told_to_end(None)
    }

    fn told_to_end(&self, _: Option<&Signals>) -> Option<i32> {
        // Whoever asks a second time is answered the same: a signal that came has come.
        self.world.told_to_end()
    }

    fn spawn(
        &self,
        line: CommandLine,
        _: Option<&Signals>,
    ) -> Result<Box<dyn Process>, NotStarted> {
        self.passes();
        self.world.spawn(line).map(|child| Box::new(child) as Box<dyn Process>)
    }

    fn beside<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        work: Work<'scope>,
    ) -> ScopedJoinHandle<'scope, Done> {
        let world = Arc::clone(&self.world);
        let life = world.turns.my_life();
        let task = world.turns.enter(life);
        if let Some(life) = life {
            world.turns.inside().lives[life].beside = Some(task);
        }
        // The work closes its end of the pipe before it gives the turn away, so who is woken by that
        // finds it closed.
        scope.spawn(move || match world.turns.run(task, work) {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn join(&self, thread: ScopedJoinHandle<'_, Done>) -> std::thread::Result<Done> {
        if let Some(life) = self.world.turns.my_life() {
            let beside = self.world.turns.inside().lives[life].beside;
            if let Some(task) = beside {
                self.world.turns.wait(When::Over(task));
            }
        }
        thread.join()
    }
}
