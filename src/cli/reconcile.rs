//! `ctrlrun reconcile`: asks probes about what is stuck (DEC-9 to DEC-11).
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use ctrlrun::drive::reconcile::{Asking, Came, Reconciled, reconcile as ask};
use ctrlrun::exec::{Signals, die_of_signal};
use ctrlrun::plan::key::Key;
use ctrlrun::store::{Filter, Flow, Listed};

use super::access::{Opened, for_writing};
use super::error::{CliError, Deed, Exit, Kind};
use super::probes::{Chosen, Probes};
use super::spooled::Delivered;
use super::values;
use super::{Global, existing_key};

mod told;
use told::{Came as Told, Teller};

/// How many keys are read of the store at a time.
const PAGE: usize = 256;

/// Ask probes whether what is stuck has happened
///
/// A probe is a command that looks at the world: it says so by exit 0 and a last line `committed` or
/// `not-executed`; anything else is unknown. "Not executed" means "not so far": it frees a key only if
/// the command itself is known to have ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctrlrun reconcile refund:txn_77 --reconcile './was-it-refunded.sh \"$CTRLRUN_IDEMPOTENCY_KEY\"'
  ctrlrun reconcile --all                         the probes that ctrlrun.toml declares
  ctrlrun reconcile --all --prefix refund: -j 8 --reconcile ./was-it-refunded.sh

The probe has CTRLRUN_KEY, CTRLRUN_ATTEMPT and CTRLRUN_IDEMPOTENCY_KEY in its environment.
More: ctrlrun help probes

Exit status: 0 nothing of it is stuck any more; 76 some are; 75 one is running; 66 no such effect.")]
pub struct ReconcileArgs {
    /// The effects' keys
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub key: Vec<String>,
    /// All that are stuck
    #[arg(long)]
    pub all: bool,
    /// With --all: only keys that start with this
    #[arg(long, value_name = "P", requires = "all", conflicts_with = "key")]
    pub prefix: Option<String>,
    /// So many probes at a time
    #[arg(short, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// The probe (sh -c) [default: that of the effect in ctrlrun.toml whose key it is]
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    pub reconcile: Option<String>,
    /// How long a probe may take [default: what its effect says, or 30s]
    #[arg(long, value_name = "DUR", value_parser = values::some_time)]
    pub reconcile_timeout: Option<Duration>,
}

/// Asks, and tells what came of it.
///
/// # Errors
/// 64 without a probe; what the store could not do.
pub fn reconcile(args: &ReconcileArgs, global: &Global) -> Result<Exit, CliError> {
    let mut named = Vec::new();
    let mut seen = HashSet::new();
    for text in &args.key {
        let key = existing_key(text, Deed::Change)?;
        // Two probes of one key at a time would only be in each other's way.
        if seen.insert(key.clone()) {
            named.push(key);
        }
    }
    let probes = Probes::find(args.reconcile.as_deref(), args.reconcile_timeout, &global.settings)?;
    let signals = Signals::install().map_err(|error| CliError::no_signals(&error))?;
    let opened = for_writing(global, Deed::Change)?;
    let delivered = Delivered::all(&opened, global)?;
    let began = Instant::now();
    let work = Work {
        opened: &opened,
        probes: &probes,
        delivered: &delivered,
        signals: &signals,
        queue: Mutex::new(if args.all {
            Queue::All { prefix: args.prefix.clone(), page: Vec::new(), after: None, over: false }
        } else {
            named.reverse();
            Queue::Named(named)
        }),
        stop: AtomicBool::new(false),
    };
    let mut teller = Teller::new(&opened, global, args.all);
    let (sender, results) = channel();
    let told = scope(|scope| {
        for _ in 0..args.jobs.get() {
            let (work, sender) = (&work, sender.clone());
            scope.spawn(move || work.until_done(&sender));
        }
        drop(sender);
        tell_all(&results, &mut teller, &work)
    });
    told?;
    let exit = teller.end(began.elapsed())?;
    if let Some(signal) = teller.interrupted() {
        // All that was done is recorded and told.
        die_of_signal(signal);
    }
    Ok(exit)
}

fn tell_all(
    results: &Receiver<(String, Told)>,
    teller: &mut Teller<'_>,
    work: &Work<'_>,
) -> Result<(), CliError> {
    let mut told = Ok(());
    for (key, came) in results {
        if told.is_ok() {
            told = teller.tell(&key, came);
        }
        if told.is_err() {
            // Nobody would learn of what the rest does: it is not begun.
            work.stop.store(true, Ordering::Relaxed);
        }
    }
    told
}

/// What the workers share.
struct Work<'a> {
    opened: &'a Opened,
    probes: &'a Probes,
    delivered: &'a Delivered,
    signals: &'a Signals,
    queue: Mutex<Queue>,
    /// No further key is begun.
    stop: AtomicBool,
}

/// The keys that are still to be asked about.
enum Queue {
    /// These; the last one first.
    Named(Vec<Key>),
    /// All that are stuck, read page by page.
    All { prefix: Option<String>, page: Vec<Item>, after: Option<Key>, over: bool },
}

/// What a listing has handed out.
enum Item {
    Key(Key),
    Unreadable { key: String, why: String },
}

impl Work<'_> {
    fn until_done(&self, results: &Sender<(String, Told)>) {
        while !self.stop.load(Ordering::Relaxed) {
            let (key, came) = match self.next() {
                Ok(None) => return,
                Ok(Some(Item::Key(key))) => (key.as_str().to_owned(), self.one(&key)),
                Ok(Some(Item::Unreadable { key, why })) => (key, Told::Unreadable(why)),
                Err(error) => (String::new(), Told::Failed(error)),
            };
            if came.ends_it() {
                self.stop.store(true, Ordering::Relaxed);
            }
            // The other side listens until all of us have ended.
            let _ = results.send((key, came));
        }
    }

    fn one(&self, key: &Key) -> Told {
        if let Err(error) = self.delivered.check(self.opened, key, Deed::Change) {
            return Told::Undelivered(error);
        }
        let probe = match self.probes.of(key) {
            Chosen::Probe(probe) => probe,
            Chosen::None(why) => return Told::NoProbe(why),
        };
        let asking = Asking {
            store: self.opened.store.as_ref(),
            probe: &probe,
            signals: Some(self.signals),
            within: self.opened.within,
        };
        match ask(key, asking) {
            Reconciled { came: Came::CouldNot(error), .. } => {
                Told::Failed(self.opened.could_not(&error))
            }
            Reconciled { came: Came::Unsure(error), .. } => {
                Told::Failed(CliError::unknown(&error, &self.opened.place, Deed::Change))
            }
            reconciled => Told::Asked(Box::new(reconciled), probe.signature()),
        }
    }

    fn next(&self) -> Result<Option<Item>, CliError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *queue {
            Queue::Named(keys) => Ok(keys.pop().map(Item::Key)),
            Queue::All { prefix, page, after, over } => {
                if page.is_empty() && !*over {
                    *page = self.page(prefix.clone(), after.clone())?;
                    *over = page.len() < PAGE;
                    *after = page.iter().rev().find_map(|item| match item {
                        Item::Key(key) => Some(key.clone()),
                        Item::Unreadable { key, .. } => Key::new(key.as_str()).ok(),
                    });
                    // Without a place to go on from, there is no going on.
                    *over |= after.is_none();
                    page.reverse();
                }
                Ok(page.pop())
            }
        }
    }

    /// The next stuck ones. A page at a time: no cursor stays open while probes run.
    fn page(&self, prefix: Option<String>, after: Option<Key>) -> Result<Vec<Item>, CliError> {
        let filter = Filter { stuck: true, prefix, after, ..Filter::default() };
        let mut page = Vec::new();
        let mut each = |listed| {
            page.push(match listed {
                Listed::Record(shown) => Item::Key(shown.record.key.clone()),
                Listed::Unreadable { key, why } => Item::Unreadable { key, why },
            });
            if page.len() == PAGE { Flow::Stop } else { Flow::Continue }
        };
        let listed = self.opened.store.list(&filter, &mut each, self.opened.within);
        listed.map_err(|error| self.opened.could_not(&error))?;
        Ok(page)
    }
}

/// The exit status of what is left: the first of DEC-11 that applies.
fn exit_of(failed: Option<Exit>, missing: bool, left: bool, running: bool) -> Exit {
    if let Some(exit) = failed {
        exit
    } else if missing {
        Kind::NotFound.exit()
    } else if left {
        Kind::Ambiguous.exit()
    } else if running {
        Kind::InProgress.exit()
    } else {
        Exit::OK
    }
}
