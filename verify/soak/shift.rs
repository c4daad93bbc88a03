//! An interval: some lanes of operations, and then, with nothing else going on, what has lapsed is
//! found by the next one, everything is checked and judged, a person decides, and what is settled is
//! forgotten (SOA-2 to SOA-5).
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use ctrlrun::plan::effect::Event;
use ctrlrun::plan::key::Key;

use super::Due;
use super::deck::{Doubt, Kind, dealt};
use super::judge::{Injection, Stands, judge};
use super::measure::entries;
use super::operate::{Operated, again, operate};
use super::report::Soaked;
use crate::verify::bench::Bench;
use crate::verify::check::{Evidence, violations};
use crate::verify::lab::{Halt, Lab, WITHIN, exit};
use crate::verify::ledger::Line;
use crate::verify::worker::broke;

/// Operations that go on at once.
const LANES: usize = 4;

/// When an interval ends: at that number of operations, or at that time.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// The number of the first operation that is not of it.
    pub number: u64,
    /// The time after which none begins.
    pub time: Option<Instant>,
}

/// See the module.
pub struct Shift<'a> {
    /// What is shared.
    pub bench: &'a Bench,
    /// The injections.
    pub ledger: &'a Path,
    /// What the operations are dealt from.
    pub seed: u64,
    /// When it ends.
    pub until: Until,
}

/// Outcomes that are in the spool: that of the workers of whichever interval is still there.
pub fn spooled(bench: &Bench) -> u64 {
    let Ok(found) = fs::read_dir(bench.scratch().directory()) else {
        return 0;
    };
    found.flatten().map(|entry| entries(&entry.path().join("spool"))).sum()
}

impl Shift<'_> {
    /// Does it, and adds what came of it; `time` names its keys.
    ///
    /// # Errors
    /// [`Halt`].
    pub fn work(&self, time: u32, soaked: &mut Soaked, due: &mut Due) -> Result<(), Halt> {
        let lab = Lab::new(self.bench, "SOAK", time)?;
        // Each interval's ledger begins anew: what is judged is gone from memory and from disk.
        let _ = fs::remove_file(self.ledger);
        let mut operated = self.lanes(&lab, soaked.operations)?;
        operated.sort_by_key(|done| done.key.clone());
        self.judge(&lab, &operated, soaked)?;
        decided(&lab, &operated)?;
        let forget = ["prune", "--older-than", "0ms", "--forget-keys", "--yes"];
        let ended = lab.tool(forget).end()?;
        if ended.code != Some(0) {
            return Err(Halt::Broke(format!("prune: {}", ended.stderr)));
        }
        due.records += count(operated.iter().filter(|it| it.kind.stays() && it.fell && !it.slow));
        due.loose += count(operated.iter().filter(|it| it.slow));
        soaked.operations += count(operated.iter());
        soaked.ordinary += count(operated.iter().filter(|it| !it.kind.is_injected()));
        soaked.slow += count(operated.iter().filter(|it| it.slow));
        for done in operated.iter().filter(|it| it.kind.is_injected()) {
            let (planned, fell) = soaked.injected.entry(done.kind.name()).or_default();
            *planned += 1;
            *fell += u64::from(done.fell);
        }
        let (wrong, kills) = lab.found();
        soaked.violations.extend(wrong);
        soaked.kills += kills;
        soaked.executions += count(lab.ledger()?.iter());
        let directory = lab.directory.clone();
        // What is in the spool now is measured as it is, and stays.
        drop(operated);
        drop(lab);
        if entries(&directory.join("spool")) == 0 {
            fs::remove_dir_all(directory).map_err(|error| broke("an interval's files", &error))?;
        }
        Ok(())
    }

    /// Lanes of operations, from that number on; each waits for what of its own has to lapse. A worker
    /// dies with the thread that started it (its leash), so that no lane may end before its workers.
    fn lanes<'a>(&self, lab: &'a Lab<'a>, first: u64) -> Result<Vec<Operated<'a>>, Halt> {
        let next = AtomicU64::new(first);
        // The first doubt of an interval is not written down, so that it must be found.
        let control = AtomicBool::new(false);
        let lanes: Vec<Result<Vec<Operated<'a>>, Halt>> = std::thread::scope(|scope| {
            let lane = || {
                let done = self.lane(lab, &next, &control);
                if done.is_err() {
                    self.bench.stop();
                }
                done
            };
            let running: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
            let panicked = || Err(Halt::Broke("a lane panicked".to_owned()));
            running.into_iter().map(|lane| lane.join().unwrap_or_else(|_| panicked())).collect()
        });
        // A lane that was stopped because another broke tells nothing.
        let broke = lanes.iter().find_map(|lane| match lane {
            Err(halt @ Halt::Broke(_)) => Some(halt.clone()),
            Ok(_) | Err(Halt::Stopped | Halt::Slow) => None,
        });
        match broke {
            Some(halt) => Err(halt),
            None => Ok(lanes
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect()),
        }
    }

    fn lane<'a>(
        &self,
        lab: &'a Lab<'a>,
        next: &AtomicU64,
        control: &AtomicBool,
    ) -> Result<Vec<Operated<'a>>, Halt> {
        let mut operated = Vec::new();
        while self.until.time.is_none_or(|time| Instant::now() < time) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.until.number {
                break;
            }
            let kind = dealt(self.seed, number);
            let is_control =
                kind == Kind::Doubt(Doubt::Exit) && !control.swap(true, Ordering::Relaxed);
            operated.push(operate(lab, self.ledger, kind, number, is_control)?);
        }
        for done in &mut operated {
            lapsed(lab, done)?;
        }
        Ok(operated)
    }

    /// Holds what happened against the rules, and every doubt against the ledger.
    fn judge(
        &self,
        lab: &Lab<'_>,
        operated: &[Operated<'_>],
        soaked: &mut Soaked,
    ) -> Result<(), Halt> {
        let mut ran: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        for line in lab.ledger()? {
            ran.entry(line.key.clone()).or_default().push(line);
        }
        let mut stands = Vec::new();
        for done in operated {
            let history = lab.store.history(&done.key, 1, WITHIN);
            let history =
                history.map_err(|error| Halt::Broke(format!("the scratch store: {error}")))?;
            let evidence = Evidence {
                key: done.key.clone(),
                record: lab.record(&done.key)?,
                ledger: ran.remove(done.key.as_str()).unwrap_or_default(),
                history,
            };
            soaked.violations.extend(violations(&evidence));
            let doubts = |event: &Event| matches!(event, Event::Ambiguated(_));
            let was_ambiguous = evidence.history.iter().any(|row| doubts(&row.event));
            stands.push(Stands { key: done.key.as_str().to_owned(), was_ambiguous });
        }
        let fell: BTreeSet<&str> = operated
            .iter()
            .filter(|done| done.fell && !done.slow)
            .map(|done| done.key.as_str())
            .collect();
        let mut judged = judge(&injections(self.ledger)?, &stands, |key| fell.contains(key));
        let controls: BTreeSet<&str> = operated
            .iter()
            .filter(|done| done.is_control && !done.slow)
            .map(|done| done.key.as_str())
            .collect();
        let before = judged.unexplained.len();
        judged.unexplained.retain(|key| !controls.contains(key.as_str()));
        soaked.controls += count(controls.iter());
        soaked.controls_caught += count(0..before - judged.unexplained.len());
        soaked.ambiguous += judged.ambiguous;
        soaked.explained += judged.explained;
        soaked.unexplained.extend(judged.unexplained);
        soaked.violations.extend(judged.missing);
        Ok(())
    }
}

fn injections(ledger: &Path) -> Result<Vec<Injection>, Halt> {
    let text = match fs::read_to_string(ledger) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(|error| broke("the soak's ledger", &error))?,
    };
    let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    lines.map_err(|error| Halt::Broke(format!("the soak's ledger: {error}")))
}

/// Lets the lease of an operation end, and the next one come; then its holder, if it only slept.
fn lapsed<'a>(lab: &'a Lab<'a>, done: &mut Operated<'a>) -> Result<(), Halt> {
    if done.lapses {
        lab.until_lapsed(&done.key)?;
        slow(lab.ended(&done.key, &lab.run(&done.key).end()?, &[exit::AMBIGUOUS]), done)?;
    }
    let Some(mut holder) = done.asleep.take() else {
        return Ok(());
    };
    holder.go_on();
    let ended = holder.end()?;
    let wanted: &[i32] = if done.lapses { &[exit::NOT_RECORDED] } else { &[0] };
    slow(lab.ended(&done.key, &ended, wanted), done)
}

fn slow(ended: Result<(), Halt>, done: &mut Operated<'_>) -> Result<(), Halt> {
    match ended {
        Err(Halt::Slow) => {
            done.slow = true;
            Ok(())
        }
        ended => ended,
    }
}

/// A person decides about everything that is AMBIGUOUS, in one go. What did not run did not happen, and
/// half of what exited with a code of which nobody knows; both are run again.
fn decided<'a>(lab: &'a Lab<'a>, operated: &[Operated<'a>]) -> Result<(), Halt> {
    let mut lines = String::new();
    let mut rerun: Vec<(Key, Kind, usize)> = Vec::new();
    for (nth, done) in operated.iter().enumerate() {
        let Some(record) = lab.record(&done.key)?.filter(|it| it.state.name() == "ambiguous")
        else {
            continue;
        };
        let ran = lab.ran(&done.key)?.len();
        let happened = ran > 0 && (done.kind != Kind::Doubt(Doubt::Exit) || nth % 2 == 0);
        if !happened {
            rerun.push((done.key.clone(), done.kind, ran));
        }
        let line = serde_json::json!({
            "key": done.key.as_str(), "revision": record.revision, "reason": "soak",
            "decision": if happened { "committed" } else { "not-executed" }, "by": "a-person",
        });
        lines.push_str(&format!("{line}\n"));
    }
    if lines.is_empty() {
        return Ok(());
    }
    let file = lab.directory.join("decisions");
    fs::write(&file, lines).map_err(|error| broke("the decisions", &error))?;
    let ended =
        lab.tool([std::ffi::OsStr::new("resolve"), "--from".as_ref(), file.as_ref()]).end()?;
    lab.demand(ended.code == Some(0), || format!("decisions: {}", ended.stderr));
    for (key, kind, ran) in rerun {
        let job =
            if let Kind::Doubt(doubt) = kind { again(lab, &key, doubt) } else { lab.run(&key) };
        match lab.ended(&key, &job.end()?, &[0]) {
            Err(Halt::Slow) => continue,
            ended => ended?,
        }
        lab.stands(&key, "committed")?;
        lab.executions(&key, ran + 1)?;
    }
    Ok(())
}

fn count(of: impl Iterator) -> u64 {
    u64::try_from(of.count()).unwrap_or(u64::MAX)
}
