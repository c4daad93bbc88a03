//! The bus as a store, for a thread that asks and waits for the answer.
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::{Ask, Sender};
use crate::plan::effect::HistoryRow;
use crate::plan::key::Key;
use crate::plan::protocol::{self, Input};
use crate::store::{
    Append, Captured, CouldNot, Cut, End, Filter, Flow, Found, Identity, Listed, Pruned, Reason,
    Runs, Stats, Store, Stream, Walked,
};

/// How much longer than the store's own time an answer is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// A store whose loads and writes go through a bus, and so share transactions with others'. Lists,
/// histories and outputs do not: they are not asked by the thousand.
pub struct Client {
    sender: Sender,
    store: Arc<dyn Store>,
}

impl Client {
    /// A client of the bus that `sender` leads to, which owns `store`.
    #[must_use]
    pub fn new(sender: Sender, store: Arc<dyn Store>) -> Self {
        Self { sender, store }
    }

    /// `None`: the answer did not come in time.
    fn ask(&self, key: &Key, ask: Ask, within: Duration) -> Option<Input> {
        let (tell, told) = sync_channel(1);
        let reply = Box::new(move |answer| drop(tell.try_send(answer)));
        self.sender.ask(key, ask, within, false, reply);
        told.recv_timeout(within.saturating_add(GRACE)).ok()
    }
}

fn silent() -> CouldNot {
    CouldNot {
        reason: Reason::Busy,
        message: "the store did not answer in time".to_owned(),
        hint: None,
    }
}

impl Store for Client {
    fn load(&self, key: &Key, ask: protocol::Ask, within: Duration) -> Result<Found, CouldNot> {
        match self.ask(key, Ask::Load(ask), within) {
            Some(Input::Loaded(answer, _)) => answer,
            Some(
                Input::Start | Input::Drawn(_) | Input::Ended(_) | Input::Reread(_) | Input::Paused,
            )
            | None => Err(silent()),
        }
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        match self.ask(&append.next.key, Ask::Append(Box::new(append.clone())), within) {
            Some(Input::Ended(end)) => end,
            // The bus may be performing it at this moment.
            Some(
                Input::Start
                | Input::Drawn(_)
                | Input::Loaded(..)
                | Input::Reread(_)
                | Input::Paused,
            )
            | None => End::Unknown(silent()),
        }
    }

    fn reread(&self, key: &Key, ask: protocol::Ask, within: Duration) -> Result<Found, CouldNot> {
        match self.ask(key, Ask::Reread(ask), within) {
            Some(Input::Reread(answer)) => answer,
            Some(
                Input::Start
                | Input::Drawn(_)
                | Input::Loaded(..)
                | Input::Ended(_)
                | Input::Paused,
            )
            | None => Err(silent()),
        }
    }

    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.store.list(filter, each, within)
    }

    fn history(&self, key: &Key, from: u64, within: Duration) -> Result<Vec<HistoryRow>, CouldNot> {
        self.store.history(key, from, within)
    }

    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        within: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        self.store.output(key, attempt, stream, within)
    }

    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.store.walk(filter, each, within)
    }

    fn prune(&self, cut: &Cut, within: Duration) -> Pruned {
        self.store.prune(cut, within)
    }

    fn stats(&self, within: Duration) -> Result<Stats, CouldNot> {
        self.store.stats(within)
    }

    fn runs(&self) -> &dyn Runs {
        self.store.runs()
    }

    fn identity(&self) -> &Identity {
        self.store.identity()
    }
}
