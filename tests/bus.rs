//! The command bus: transparent as a store, gathering, and true to whoever waits when its store fails.
mod common;
#[path = "common/wait.rs"]
mod wait;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::store::Home;
use ctrlrun::drive::bus::{Ask, Bus, Client};
use ctrlrun::drive::{Call, handle};
use ctrlrun::plan::effect::{Command, HistoryRow, Reserve};
use ctrlrun::plan::expect::StreamState;
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::protocol::{self, Done, Input};
use ctrlrun::store::conformance::suite;
use ctrlrun::store::faulty::{Fault, Faulty, Planned, Verb};
use ctrlrun::store::{
    Append, Captured, CouldNot, Cut, End, Filter, Flow, Found, Identity, Listed, Pruned, Reason,
    Stats, Store, Stream, Walked,
};

const WITHIN: Duration = Duration::from_secs(20);

fn client(store: Arc<dyn Store>) -> (Bus, Client) {
    let bus = Bus::start(Arc::clone(&store)).unwrap();
    let client = Client::new(bus.sender(), store);
    (bus, client)
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A store that stands still at its first load until the test lets it go, counts its groups, and
/// panics where it is told to.
struct Gate {
    inner: Arc<dyn Store>,
    open: Mutex<bool>,
    opened: Condvar,
    waits: AtomicBool,
    panics: AtomicBool,
    loads: Mutex<Vec<usize>>,
    appends: Mutex<Vec<usize>>,
    rereads: Mutex<Vec<usize>>,
}

impl Gate {
    fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            open: Mutex::new(false),
            opened: Condvar::new(),
            waits: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            loads: Mutex::default(),
            appends: Mutex::default(),
            rereads: Mutex::default(),
        })
    }

    fn stand(&self) {
        self.waits.store(true, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    fn let_go(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait_until_it_stands(&self) {
        wait::until("the store was asked", || self.waits.load(Ordering::SeqCst));
    }
}

impl Store for Gate {
    fn load(&self, key: &Key, ask: protocol::Ask, within: Duration) -> Result<Found, CouldNot> {
        self.inner.load(key, ask, within)
    }

    fn load_many(
        &self,
        asked: &[(&Key, protocol::Ask)],
        within: Duration,
    ) -> Vec<Result<Found, CouldNot>> {
        self.loads.lock().unwrap().push(asked.len());
        self.stand();
        self.inner.load_many(asked, within)
    }

    fn append(&self, append: &Append, within: Duration) -> End {
        self.inner.append(append, within)
    }

    fn append_many(&self, appends: &[&Append], within: Duration) -> Vec<End> {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
        self.appends.lock().unwrap().push(appends.len());
        self.inner.append_many(appends, within)
    }

    fn reread(&self, key: &Key, ask: protocol::Ask, within: Duration) -> Result<Found, CouldNot> {
        self.inner.reread(key, ask, within)
    }

    fn reread_many(
        &self,
        asked: &[(&Key, protocol::Ask)],
        within: Duration,
    ) -> Vec<Result<Found, CouldNot>> {
        self.rereads.lock().unwrap().push(asked.len());
        self.inner.reread_many(asked, within)
    }

    fn list(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Listed) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.inner.list(filter, each, within)
    }

    fn history(&self, key: &Key, from: u64, within: Duration) -> Result<Vec<HistoryRow>, CouldNot> {
        self.inner.history(key, from, within)
    }

    fn output(
        &self,
        key: &Key,
        attempt: u64,
        stream: Stream,
        within: Duration,
    ) -> Result<Option<Captured>, CouldNot> {
        self.inner.output(key, attempt, stream, within)
    }

    fn walk(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Walked) -> Flow,
        within: Duration,
    ) -> Result<(), CouldNot> {
        self.inner.walk(filter, each, within)
    }

    fn prune(&self, cut: &Cut, within: Duration) -> Pruned {
        self.inner.prune(cut, within)
    }

    fn stats(&self, within: Duration) -> Result<Stats, CouldNot> {
        self.inner.stats(within)
    }

    fn runs(&self) -> &dyn ctrlrun::store::Runs {
        self.inner.runs()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }
}

fn reserve(key: &Key) -> Call {
    Call {
        key: key.clone(),
        command: Command::Reserve(Reserve {
            request: ctrlrun::plan::effect::Request {
                fingerprint: Fingerprint([1; 32]),
                program: "p".to_owned(),
                arguments: 0,
                command: None,
            },
            attempt_id: "a".to_owned(),
            lease: Duration::from_secs(30),
            max_attempts: None,
            rebind: false,
            run_id: None,
        }),
        expect: StreamState::Any,
        within: WITHIN,
        exchange_max: WITHIN,
        outputs: Vec::new(),
    }
}

#[test]
fn the_bus_conforms_as_the_store_behind_it_does() {
    // STO-1, BAT-5
    let home = Home::new();
    let (_bus, client) = client(home.store());
    let wrong: Vec<String> = suite()
        .into_iter()
        .filter_map(|(name, check)| check(&client).err().map(|why| format!("{name}: {why}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Asks to load, and gives the end of the line on which the answer comes.
fn asks(bus: &Bus, name: &str, within: Duration, first: bool) -> Receiver<(String, Input)> {
    let (tell, told) = channel();
    let named = name.to_owned();
    let reply = Box::new(move |input| tell.send((named, input)).unwrap());
    bus.sender().ask(&key(name), Ask::Load(protocol::Ask::Nothing), within, first, reply);
    told
}

#[test]
fn what_is_asked_while_the_store_is_at_work_is_done_together_and_renewals_first() {
    // BAT-4, BAT-5
    let home = Home::new();
    let gate = Gate::new(home.store());
    let bus = Bus::start(Arc::clone(&gate) as Arc<dyn Store>).unwrap();
    let first = asks(&bus, "a", WITHIN, false);
    gate.wait_until_it_stands();
    let late = asks(&bus, "too late", Duration::ZERO, false);
    let others: Vec<_> = (0..9).map(|i| asks(&bus, &format!("k{i}"), WITHIN, i == 8)).collect();
    gate.let_go();
    for told in others.iter().chain([&first]) {
        let (_, input) = told.recv_timeout(WITHIN).unwrap();
        assert!(matches!(input, Input::Loaded(Ok(_), _)), "{input:?}");
    }
    // Its time was over before its turn: nothing of it was sent.
    let (_, input) = late.recv_timeout(WITHIN).unwrap();
    let Input::Loaded(Err(error), _) = input else { panic!("{input:?}") };
    assert_eq!(error.reason, Reason::Busy);
    assert_eq!(*gate.loads.lock().unwrap(), [1, 9]);
}

#[test]
fn a_store_that_dies_leaves_unknown_what_it_had_and_refuses_the_rest() {
    // BAT-6
    let home = Home::new();
    let gate = Gate::new(home.store());
    gate.let_go();
    let (_bus, client) = client(Arc::clone(&gate) as Arc<dyn Store>);
    let call = reserve(&key("k"));
    gate.panics.store(true, Ordering::SeqCst);
    let done = handle(&client, call);
    // The append is unknown; the re-read that would settle it fails. Nothing runs.
    assert!(matches!(done, Done::Unknown(_)), "{done:?}");
    let done = handle(&client, reserve(&key("other")));
    assert!(matches!(done, Done::CouldNot(_)), "{done:?}");
    assert_eq!(gate.inner.load(&key("k"), protocol::Ask::Nothing, WITHIN).unwrap().record, None);
}

/// Reserves so many keys at once through one bus, the first loads of all gathered.
fn reserve_at_once(store: &Arc<Gate>, many: usize) -> Vec<Done> {
    let bus = Bus::start(Arc::clone(store) as Arc<dyn Store>).unwrap();
    let held = asks(&bus, "held", WITHIN, false);
    store.wait_until_it_stands();
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..many)
            .map(|i| {
                let client = Client::new(bus.sender(), Arc::clone(store) as Arc<dyn Store>);
                scope.spawn(move || handle(&client, reserve(&key(&format!("k{i}")))))
            })
            .collect();
        store.let_go();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    held.recv_timeout(WITHIN).unwrap();
    ends
}

#[test]
fn a_group_whose_answer_was_lost_is_settled_and_every_key_has_one_reservation() {
    // BAT-3, CMT-10: landed unseen, and not landed at all.
    for fault in [Fault::LoseAnswer, Fault::LoseRequest, Fault::Late(Verb::Reread)] {
        let home = Home::new();
        let planned = (1..=4).map(|call| Planned { verb: Verb::Append, call, fault });
        let faulty = Arc::new(Faulty::new(home.store(), planned.clone().take(1)));
        let gate = Gate::new(Arc::clone(&faulty) as Arc<dyn Store>);
        let ends = reserve_at_once(&gate, 12);
        for (at, done) in ends.iter().enumerate() {
            let Done::Answered(answered) = done else { panic!("{fault:?}: {done:?}") };
            let granted = ctrlrun::plan::effect::Answer::Granted;
            assert_eq!(answered.answer, granted, "{fault:?}: k{at}");
            let events = home.store().history(&key(&format!("k{at}")), 1, WITHIN).unwrap();
            assert_eq!(events.len(), 1, "{fault:?}: k{at}");
        }
        assert_eq!(faulty.fallen().len(), 1, "{fault:?}");
        let rereads = gate.rereads.lock().unwrap().clone();
        assert!(!rereads.is_empty(), "{fault:?}");
    }
}
