//! The ends of children, and of processes.
use ctrlrun::plan::attempt::Came;
use ctrlrun::plan::protocol::Captured;
use ctrlrun::plan::verdict::{ChildEnd, Exit, Left, NotExecuted, Said, Statement, verdict};

use crate::laws;
use crate::step::{Taking, Violation};
use crate::world::{DECLARED, Fate, Process, Word, Work};

impl Taking<'_> {
    pub fn child_ends(&mut self, process: usize, word: Word) -> Result<(), Violation> {
        let Work::Running(mut it) = self.take_out(process) else {
            return Err("the model: nothing runs".to_owned());
        };
        let (end, fate) = child_end(word, it.ended);
        it.word = Some(verdict(&end, &NotExecuted::parse("6").unwrap_or_default()).0);
        if let Some(child) = it.child {
            self.world.rest.edit().children[child].fate = fate;
        }
        laws::happenings(self)?;
        let captured = Captured { whole: true, ..Captured::default() };
        let came = Came::Ended { end, stdout: Some(captured.clone()), stderr: Some(captured) };
        self.stepped(process, it, came)
    }

    pub fn crashes(&mut self, process: usize) -> Result<(), Violation> {
        let child = match self.take_out(process) {
            Work::Running(it) => it.child.filter(|_| it.word.is_none()),
            Work::Idle | Work::Delivering(_) => None,
        };
        let rest = self.world.rest.edit();
        rest.crashes -= 1;
        if let Some(child) = child {
            let fate = &mut rest.children[child].fate;
            *fate = if *fate == Fate::Barred { Fate::Over } else { Fate::Stray };
        }
        self.gone(process);
        Ok(())
    }

    /// Nothing is left of a process but its number of runs.
    pub fn gone(&mut self, process: usize) {
        let it = self.world.processes[process].edit();
        *it = Process { runs: it.runs, failed_at: it.failed_at, ..Process::default() };
    }
}

/// What is seen of a child's end, and what is so.
fn child_end(word: Word, told_to_end: bool) -> (ChildEnd, Fate) {
    let mut end = ChildEnd {
        exit: Exit::Code(1),
        timed_out: false,
        ended_by_holder: told_to_end,
        left: Left::Nothing,
        said: Said::nothing(),
    };
    let fate = match word {
        Word::Committed => {
            end.exit = Exit::Code(0);
            end.said.statement = Statement::Committed;
            Fate::Happened
        }
        Word::Failed => {
            end.exit = Exit::Code(DECLARED);
            Fate::Over
        }
        Word::DoubtDid => Fate::Happened,
        Word::DoubtDidNot => Fate::Over,
        Word::DoubtLeft => {
            // Its word that nothing happened would be true of itself alone.
            end.exit = Exit::Code(DECLARED);
            end.left = Left::Running(vec![7]);
            Fate::Stray
        }
        Word::Signal => {
            end.exit = Exit::Signal(11);
            Fate::Over
        }
        Word::TimedOut => {
            end.timed_out = true;
            Fate::Stray
        }
        Word::Contradiction => {
            end.exit = Exit::Code(DECLARED);
            end.said.statement = Statement::Committed;
            Fate::Happened
        }
    };
    (end, fate)
}
