//! Whose turn it is: tiers, and workflows in turn, however many each has (WFL-12).
use std::collections::BTreeSet;
use std::time::Duration;

use super::{Check, Desk, Tier, WITHIN, Wakeup, draw, same};
use crate::store::Store;
use crate::store::runs::{Take, Woken};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("workflows take turns, however many each has waiting", in_turn),
    ("a lower tier goes first", tiers),
    ("a claim takes no more than it was told to, and nothing twice", limit),
    ("more workflows with nothing due than a claim looks at hide nothing", idle),
];

/// Longer than a check, and no longer than it has to be: what of others was claimed is handed out
/// again.
const SHORT: Duration = Duration::from_secs(10);

impl Desk<'_> {
    /// Claims whatever is due, one after the other, until all of ours were handed out; which of ours
    /// came, in order, by workflow.
    fn turns(&self, limit: usize, ours: usize) -> Result<Vec<Woken>, String> {
        let mut taken: Vec<Woken> = Vec::new();
        self.until("all of ours were handed out", || {
            let take = Take { only: None, limit, claim: draw()?, hold: SHORT };
            let claimed = self.runs.claim_wakeups(&take, WITHIN).map_err(|e| e.to_string())?;
            if claimed.taken.len() > limit {
                return Err(format!(
                    "{} were taken where {limit} were asked for",
                    claimed.taken.len()
                ));
            }
            let of_us = |woken: &Woken| woken.run.as_str().starts_with(&self.prefix);
            taken.extend(claimed.taken.into_iter().filter(of_us));
            Ok(taken.len() >= ours)
        })?;
        let runs: BTreeSet<_> = taken.iter().map(|woken| woken.run.clone()).collect();
        same(&runs.len(), &taken.len(), "runs, each once")?;
        Ok(taken)
    }

    /// A run of `workflow` that waits to be woken.
    fn waiting(&self, run: &str, workflow: &str, tier: Tier) -> Result<Wakeup, String> {
        let run = self.started_as(run, workflow, tier)?.id;
        let wakeup = self.wakeup(&run, "w", self.now()?)?;
        self.put(&wakeup)?;
        Ok(wakeup)
    }

    fn name_of(&self, woken: &Woken) -> String {
        woken.run.as_str().trim_start_matches(&self.prefix).to_owned()
    }
}

fn in_turn(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let (hog, small, other) = (draw()?.to_string(), draw()?.to_string(), draw()?.to_string());
    let mut all = Vec::new();
    for number in 0..40 {
        all.push(desk.waiting(&format!("hog{number:02}"), &hog, Tier::Background)?);
    }
    for number in 0..3 {
        all.push(desk.waiting(&format!("small{number}"), &small, Tier::Background)?);
        all.push(desk.waiting(&format!("other{number}"), &other, Tier::Background)?);
    }
    let order: Vec<String> = desk.turns(1, 46)?.iter().map(|woken| desk.name_of(woken)).collect();
    desk.finish(&all)?;
    // Three workflows in turn: after nine turns the small ones have had all of theirs.
    let early = order.iter().take(9).filter(|run| !run.starts_with("hog")).count();
    same(&early, &6, &format!("of the small ones among the first nine of {order:?}"))?;
    let hogs: Vec<&String> = order.iter().filter(|run| run.starts_with("hog")).collect();
    same(&hogs.is_sorted(), &true, "within a workflow the one that is due longest goes first")
}

fn tiers(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let workflow = draw()?.to_string();
    let mut all = Vec::new();
    for (name, tier) in [
        ("c0", Tier::Background),
        ("b0", Tier::Normal),
        ("a0", Tier::Urgent),
        ("c1", Tier::Background),
        ("b1", Tier::Normal),
        ("a1", Tier::Urgent),
    ] {
        all.push(desk.waiting(name, &workflow, tier)?);
    }
    let order: Vec<String> = desk.turns(2, 6)?.iter().map(|woken| desk.name_of(woken)).collect();
    desk.finish(&all)?;
    let tiers: Vec<&str> = order.iter().map(|name| &name[..1]).collect();
    same(&tiers.is_sorted(), &true, &format!("the order {order:?}"))
}

fn limit(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let workflows = [draw()?.to_string(), draw()?.to_string()];
    let mut all = Vec::new();
    for number in 0..10 {
        let workflow = &workflows[usize::from(number > 7)];
        all.push(desk.waiting(&number.to_string(), workflow, Tier::Normal)?);
    }
    let taken = desk.turns(4, 10)?;
    desk.finish(&all)?;
    same(&taken.len(), &10, "taken")
}

fn idle(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let prefix = draw()?.to_string();
    let mut all = Vec::new();
    let later = desk.now()?.plus(Duration::from_secs(3_600));
    for number in 0..150 {
        let workflow = format!("{prefix}{number:03}");
        let run = desk.started_as(&format!("idle{number}"), &workflow, Tier::Background)?.id;
        let due = if number == 70 || number == 149 { desk.now()? } else { later };
        let wakeup = desk.wakeup(&run, "w", due)?;
        desk.put(&wakeup)?;
        all.push(wakeup);
    }
    let taken = desk.turns(1, 2)?;
    desk.finish(&all)?;
    same(&taken.len(), &2, "taken")
}
