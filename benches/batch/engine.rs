//! The engine without children: every effect ends as soon as it is started.
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctrlrun::drive::batch::nursery::Nursery;
use ctrlrun::drive::batch::shard::OfChild;
use ctrlrun::drive::batch::{Item, Settings, Show, Tools, run};
use ctrlrun::exec::{ChildEnd, CommandLine, Exit};
use ctrlrun::plan::effect::{Labels, RanOn, Request};
use ctrlrun::plan::key::{Fingerprint, Key};
use ctrlrun::plan::verdict::NotExecuted;
use ctrlrun::store::{Location, Mode, Options, Store, open};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::{Arguments, Outcome, median, postgres};
use super::floor;

const EFFECTS: usize = 20_000;

/// How many are under way at once.
const PLACES: usize = 256;

const WITHIN: Duration = Duration::from_secs(30);

/// A server on loopback, started for this.
pub fn server() -> Outcome<postgres::Server> {
    postgres::server().ok_or_else(|| "no PostgreSQL server is installed".into())
}

/// Children that need no time at all.
#[derive(Default)]
struct Nobody(Vec<u64>);

impl Nursery for Nobody {
    fn start(&mut self, lane: u64, line: CommandLine) -> OfChild {
        drop(line);
        self.0.push(lane);
        OfChild::Started
    }

    fn end(&mut self, _: u64) {}

    fn end_all(&mut self) {}

    fn wait(&mut self, until: Option<Duration>, wake: BorrowedFd<'_>) -> Vec<(u64, Box<ChildEnd>)> {
        if self.0.is_empty() {
            let until = until.and_then(|until| Timespec::try_from(until).ok());
            let _ = poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], until.as_ref());
        }
        let end = || {
            Box::new(ChildEnd {
                exit: Exit::Code(0),
                timed_out: false,
                ended_by_us: false,
                descendants_left: Vec::new(),
                descendants_unseen: false,
                stdout: Default::default(),
                stderr: Default::default(),
                undelivered: 0,
                problems: Vec::new(),
                duration: Duration::from_micros(1),
            })
        };
        self.0.drain(..).map(|lane| (lane, end())).collect()
    }
}

fn item(prefix: &str, number: usize) -> Item {
    Item {
        number: number as u64 + 1,
        key: Key::new(format!("{prefix}:{number}")).unwrap_or_else(|_| unreachable!()),
        request: Request {
            fingerprint: Fingerprint([7; 32]),
            program: "true".to_owned(),
            arguments: 0,
            command: None,
        },
        program: "true".into(),
        args: Vec::new(),
        not_executed: NotExecuted::default(),
        timeout: None,
        lease: Duration::from_secs(300),
        max_attempts: None,
    }
}

/// Effects a second, of so many new ones.
fn ours(store: &Arc<dyn Store>, prefix: &str, effects: usize) -> Outcome<f64> {
    let settings = Settings {
        places: PLACES,
        shards: 1,
        store_timeout: WITHIN,
        kill_after: Duration::ZERO,
        capture: Some(0),
        show: Show::Nothing,
        outcome_dir: Some("/dev/shm".into()),
        ran_on: RanOn {
            host: "host".to_owned(),
            pid: 1,
            user: "user".to_owned(),
            directory: "/".to_owned(),
        },
        labels: Labels::new(),
    };
    let make = || -> Box<dyn Nursery> { Box::new(Nobody::default()) };
    let tools = Tools {
        store: Arc::clone(store),
        spool: None,
        journal: None,
        signals: None,
        nursery: Some(&make),
    };
    let of = prefix.to_owned();
    let items = (0..effects).map(move |number| Ok::<_, String>(item(&of, number)));
    let began = Instant::now();
    let totals = run(items, &tools, &settings, &mut |_| {})?;
    let took = began.elapsed().as_secs_f64();
    if totals.ended != effects as u64 {
        return Err(format!("{totals:?}").into());
    }
    Ok(effects as f64 / took)
}

fn sqlite(path: &Path) -> Outcome<Arc<dyn Store>> {
    at(&path.to_string_lossy())
}

fn at(location: &str) -> Outcome<Arc<dyn Store>> {
    let opened = open(&Location::parse(location)?, &Options::new(Mode::Create, WITHIN))?;
    Ok(opened.store.into())
}

pub fn measure(arguments: &Arguments) -> Outcome<()> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (mut rates, mut floors) = (Vec::new(), Vec::new());
    let server = arguments.postgres.then(server).transpose()?;
    for round in 0..arguments.rounds {
        let prefix = format!("bench{round}");
        if let Some(server) = &server {
            let store = at(&format!("{}&schema=engine", server.url("postgres")))?;
            rates.push(ours(&store, &prefix, EFFECTS)?);
            continue;
        }
        let path = directory.path().join(format!("floor-{round}.db"));
        drop(sqlite(&path)?);
        let began = Instant::now();
        floor::write(&path, &prefix, EFFECTS, PLACES)?;
        floors.push(EFFECTS as f64 / began.elapsed().as_secs_f64());
        let store = sqlite(&directory.path().join(format!("ours-{round}.db")))?;
        rates.push(ours(&store, &prefix, EFFECTS)?);
    }
    let (rate, floor) = (median(rates), median(floors));
    println!(
        "{EFFECTS} effects without children, {PLACES} at once: {rate:.0} a second; the same writes by \
         hand: {floor:.0} a second"
    );
    Ok(())
}

/// The cost of an effect among few and among many.
pub fn rows(arguments: &Arguments) -> Outcome<()> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let mut stores = Vec::new();
    for rows in [1_000, 1_000_000] {
        let path = directory.path().join(format!("{rows}.db"));
        drop(sqlite(&path)?);
        floor::write(&path, "filler", rows, 10_000)?;
        stores.push((rows, sqlite(&path)?, Vec::new()));
    }
    for round in 0..arguments.rounds {
        for (_, store, rates) in &mut stores {
            rates.push(ours(store, &format!("bench{round}"), 5_000)?);
        }
    }
    let [few, many] = stores.as_slice() else { return Err("two stores".into()) };
    let ratios = few.2.iter().zip(&many.2).map(|(few, many)| few / many).collect();
    println!(
        "an effect without a child costs {:.2} times as much among {} rows as among {} (median of \
         ratios)",
        median(ratios),
        many.0,
        few.0
    );
    Ok(())
}
