//! Many children, waited for by one thread in one poll.

use std::{os::fd::BorrowedFd, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Child, ChildEnd, POLL_MAX, Places, boottime, input, push, revents};

/// Children that one thread waits for together, each under a number of the caller's.
///
/// Each of them works as it does alone; none holds up another.
#[derive(Debug, Default)]
pub struct Children(Vec<(u64, Child)>);

impl Children {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    pub fn add(&mut self, number: u64, child: Child) {
        self.0.push((number, child));
    }

    /// The child of that number, while its end has not been told.
    pub fn get(&mut self, number: u64) -> Option<&mut Child> {
        self.0.iter_mut().find(|(of, _)| *of == number).map(|(_, child)| child)
    }

    /// All whose end has not been told.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Child> {
        self.0.iter_mut().map(|(_, child)| child)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until a child has ended, `wake` is readable or `until` has passed from now, and tells the
    /// children that have ended; meanwhile passes on their output and keeps their time-outs. Nothing
    /// is read from `wake`. With `until` of zero it does what there is to do and returns.
    pub fn wait(
        &mut self,
        until: Option<Duration>,
        wake: BorrowedFd<'_>,
    ) -> Vec<(u64, Child, Box<ChildEnd>)> {
        let until_at = until.map(|until| boottime().saturating_add(until));
        loop {
            let (found, places, woken) = self.poll_once(until_at, wake);
            let mut ended = Vec::new();
            for (at, places) in places.iter().enumerate() {
                let (_, child) = &mut self.0[at];
                let (child_ready, member_ready) = child.move_streams(&found, places);
                if let Some(end) = child.go_on(child_ready, member_ready) {
                    ended.push((at, end));
                }
            }
            // From the last on, so that the places of the others stand.
            let told: Vec<_> = ended
                .into_iter()
                .rev()
                .map(|(at, end)| {
                    let (number, child) = self.0.swap_remove(at);
                    (number, child, end)
                })
                .collect();
            if woken || !told.is_empty() || until_at.is_some_and(|at| at <= boottime()) {
                return told;
            }
        }
    }

    fn poll_once(
        &self,
        until_at: Option<Duration>,
        wake: BorrowedFd<'_>,
    ) -> (Vec<PollFlags>, Vec<Places>, bool) {
        let timeouts = self.0.iter().filter_map(|(_, child)| child.poll_timeout(None));
        // poll(2) counts on a clock that stands still in suspend.
        let until = until_at.map(|at| at.saturating_sub(boottime()).min(POLL_MAX));
        let until = until.and_then(|until| Timespec::try_from(until).ok());
        let timeout = timeouts.chain(until).min_by_key(|time| (time.tv_sec, time.tv_nsec));
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(1 + 6 * self.0.len());
        let wake = push(&mut fds, Some(input(wake)));
        let places = self.0.iter().map(|(_, child)| child.enter(&mut fds)).collect();
        // An interruption is a signal, which somebody else looks for.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            fds.iter_mut().for_each(PollFd::clear_revents);
        }
        let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let woken = !revents(&found, wake).is_empty();
        (found, places, woken)
    }
}
