//! What all guarantees share: the binary, the scratch store, the sizes, and the sign to stop.
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::broken::Break;
use super::lab::Halt;
use super::scratch::Scratch;
use super::worker::TICK;

/// Nobody may wait longer than this (VER-7): many times the lease and the wait that workers are given.
const BOUND: Duration = Duration::from_secs(30);
/// In the self-test, where some wait for what never comes.
const BOUND_BROKEN: Duration = Duration::from_secs(12);

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Processes that contend for one key.
    pub processes: usize,
    /// Rounds of contention, and at most so many of random faults.
    pub rounds: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { processes: 8, rounds: 12 }
    }
}

/// See the module.
pub struct Bench {
    binary: PathBuf,
    scratch: Box<dyn Scratch>,
    /// How much is done.
    pub sizes: Sizes,
    /// What every random choice is drawn from.
    pub seed: u64,
    breaks: Option<Break>,
    stop: AtomicBool,
    progress: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Bench {
    /// A bench on a scratch store, whose workers' stores are broken in one way or none.
    #[must_use]
    pub fn new(
        binary: PathBuf,
        scratch: Box<dyn Scratch>,
        sizes: Sizes,
        seed: u64,
        breaks: Option<Break>,
    ) -> Self {
        let stop = AtomicBool::new(false);
        Self { binary, scratch, sizes, seed, breaks, stop, progress: None }
    }

    /// With something to be told of each round.
    #[must_use]
    pub fn with_progress(mut self, progress: Box<dyn Fn() + Send + Sync>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// The binary under test: this one.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The scratch store.
    #[must_use]
    pub fn scratch(&self) -> &dyn Scratch {
        self.scratch.as_ref()
    }

    /// The rig's words for a worker.
    #[must_use]
    pub fn rig_words(&self, more: &[String]) -> String {
        let mut words = vec![format!("leash:{}", std::process::id())];
        words.extend(self.breaks.map(|how| format!("break:{}", how.about().0)));
        words.extend(more.iter().cloned());
        words.join(";")
    }

    /// The longest that anybody may wait.
    #[must_use]
    pub fn bound(&self) -> Duration {
        if self.is_broken() { BOUND_BROKEN } else { BOUND }
    }

    /// Whether the workers' stores are broken on purpose.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.breaks.is_some()
    }

    /// Whether it is broken in this way.
    #[must_use]
    pub fn breaks(&self, how: Break) -> bool {
        self.breaks == Some(how)
    }

    /// Tells everybody to stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// A short pause between two looks.
    ///
    /// # Errors
    /// [`Halt::Stopped`] once everybody was told to stop.
    pub fn pause(&self) -> Result<(), Halt> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Halt::Stopped);
        }
        sleep(TICK);
        Ok(())
    }

    /// A round is over.
    pub fn tell_progress(&self) {
        if let Some(progress) = &self.progress {
            progress();
        }
    }
}
