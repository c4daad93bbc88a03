//! The children of one shard, started and waited for on its own thread, all of them together (BAT-9,
//! BAT-11).
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::shard::OfChild;
use crate::exec::{Child, ChildEnd, Children, CommandLine, NotStartedKind};

/// What starts children for a shard, and waits for them.
pub trait Nursery: Send {
    /// Starts a child for a lane, and says what became of that.
    fn start(&mut self, lane: u64, line: CommandLine) -> OfChild;
    /// Ends the child of a lane, and its group: TERM, and KILL after its grace.
    fn end(&mut self, lane: u64);
    /// Ends all, and starts none any more.
    fn end_all(&mut self);
    /// Waits until a child has ended, `wake` is readable, or `until` has passed; the ends that were
    /// seen.
    fn wait(&mut self, until: Option<Duration>, wake: BorrowedFd<'_>) -> Vec<(u64, Box<ChildEnd>)>;
}

/// Real children.
#[derive(Debug, Default)]
pub struct Real {
    children: Children,
    ends_all: bool,
}

impl Nursery for Real {
    fn start(&mut self, lane: u64, line: CommandLine) -> OfChild {
        if self.ends_all {
            let detail = "the batch was told to stop before it could start".to_owned();
            return OfChild::NotStarted { detail, why: None };
        }
        match Child::spawn(line, None) {
            Ok(child) => {
                self.children.add(lane, child);
                OfChild::Started
            }
            Err(why) if why.kind == NotStartedKind::TooLate => OfChild::TooLate,
            Err(why) => {
                let detail = format!("could not be started: {why}");
                OfChild::NotStarted { detail, why: Some(why) }
            }
        }
    }

    fn end(&mut self, lane: u64) {
        if let Some(child) = self.children.get(lane) {
            child.end_group();
        }
    }

    fn end_all(&mut self) {
        self.ends_all = true;
        self.children.all().for_each(Child::end_group);
    }

    fn wait(&mut self, until: Option<Duration>, wake: BorrowedFd<'_>) -> Vec<(u64, Box<ChildEnd>)> {
        let ended = self.children.wait(until, wake);
        ended.into_iter().map(|(lane, child, end)| (lane, delivered(child, end))).collect()
    }
}

/// What is left to be passed on goes to files, which do not make anybody wait.
fn delivered(mut child: Child, mut end: Box<ChildEnd>) -> Box<ChildEnd> {
    if end.undelivered > 0 {
        end.problems.append(&mut child.deliver_rest().problems);
    }
    end
}
