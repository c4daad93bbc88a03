//! The row and its history: one conditional write, whose ends are those of an effect's.
use super::{
    Check, Desk, Name, RunId, Status, Tier, WITHIN, WriteId, blocked, draw, name, noted, same,
    start,
};
use crate::plan::workflow::RunEvent;
use crate::store::runs::{ListedRun, RunFilter};
use crate::store::{Flow, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a run comes back column for column", comes_back),
    ("a run that is there is not started again", started_once),
    ("a run's row is written on the one that was found", on_what_was_found),
    ("no event of a run without its row", no_history_without_row),
    ("the same run's append twice lands once", twice),
    ("a run's re-read finds the row and the event", reread),
    ("runs are listed in the order of their names", listed),
    ("runs are listed by workflow and status", filtered),
    ("a run that a wakeup waits for is not quiet", quiet),
];

fn comes_back(store: &dyn Store) -> Result<(), String> {
    // WFL-4, WFL-5
    let desk = Desk::new(store)?;
    let run = desk.run("r \u{e9} '")?;
    same(&desk.load(&run)?.run, &None, "before it is started")?;
    let first = desk.append(&run, &[start("night", Tier::Urgent)?])?;
    desk.land(&first)?;
    same(&desk.row(&run)?, &first.next, "the row")?;
    let second = desk.append(&run, &[noted("a\nb\u{e9}"), blocked("why: \u{201c}so\u{201d}")])?;
    desk.land(&second)?;
    same(&desk.row(&run)?, &second.next, "the row afterwards")?;
    same(&desk.row(&run)?.last_transition_seq, &3, "the last transition")?;
    let wanted = [first.history, second.history].concat();
    same(&desk.history(&run)?, &wanted, "the history")?;
    let from = store.runs().run_history(&run, 3, WITHIN).map_err(|error| error.to_string())?;
    same(&from, &wanted[2..].to_vec(), "the history from revision 3")
}

fn started_once(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.run("r")?;
    let (one, other) = (
        desk.append(&run, &[start("night", Tier::Normal)?])?,
        desk.append(&run, &[start("day", Tier::Normal)?])?,
    );
    desk.land(&one)?;
    desk.refused(&other)?;
    same(&desk.row(&run)?, &one.next, "the row")?;
    same(&desk.history(&run)?.len(), &1, "events")
}

fn on_what_was_found(store: &dyn Store) -> Result<(), String> {
    // WFL-6: of two ticks on one version exactly one lands.
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let (one, other) =
        (desk.append(&run, &[blocked("one")])?, desk.append(&run, &[blocked("other")])?);
    let mut forged = one.clone();
    if let Some(found) = &mut forged.found {
        // The version alone is not enough.
        found.write_id = WriteId(draw()?);
    }
    desk.refused(&forged)?;
    desk.land(&one)?;
    desk.refused(&other)?;
    same(&desk.row(&run)?, &one.next, "the row")?;
    let gone = desk.append(&desk.run("never")?, &[start("night", Tier::Normal)?])?;
    let mut gone = gone;
    gone.found = Some(gone.next.clone());
    desk.refused(&gone)
}

fn no_history_without_row(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let mut stale = desk.append(&run, &[blocked("stale")])?;
    let now = desk.now()?;
    stale.wakeups_put.push(desk.wakeup(&run, "never", now)?);
    stale.dispatches_put.push(super::dispatch(&run, "a", stale.next.write_id, now)?);
    desk.land(&desk.append(&run, &[blocked("first")])?)?;
    desk.refused(&stale)?;
    same(&desk.history(&run)?.len(), &2, "events")?;
    let found = desk.load(&run)?;
    same(&found.wakeups, &Vec::new(), "wakeups")?;
    same(&found.dispatches, &Vec::new(), "dispatches")
}

fn twice(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let append = desk.append(&run, &[blocked("x")])?;
    desk.land(&append)?;
    desk.refused(&append)?;
    same(&desk.history(&run)?.len(), &2, "events")
}

fn reread(store: &dyn Store) -> Result<(), String> {
    // CMT-9
    let desk = Desk::new(store)?;
    let first = desk.started("r")?;
    let run = first.id.clone();
    let append = desk.append(&run, &[noted("x"), blocked("y")])?;
    desk.land(&append)?;
    let again = |revision| {
        store.runs().reread_run(&run, revision, WITHIN).map_err(|error| error.to_string())
    };
    let found = again(2)?;
    same(&found.run.as_ref(), &Some(&append.next), "the row")?;
    same(&found.event.as_ref(), &append.history.first(), "the event")?;
    same(&again(9)?.event, &None, "an event that is not there")?;
    let nothing = store.runs().reread_run(&desk.run("none")?, 1, WITHIN);
    let nothing = nothing.map_err(|error| error.to_string())?;
    same(&(nothing.run, nothing.event), &(None, None), "a run that is not there")
}

impl Desk<'_> {
    fn list(&self, filter: &RunFilter) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        let mut each = |listed| {
            all.push(match listed {
                ListedRun::Run(run, _) => {
                    let name = run.id.as_str();
                    name.strip_prefix(&self.prefix).unwrap_or(name).to_owned()
                }
                ListedRun::Unreadable { run, why } => format!("{run}: {why}"),
            });
            Flow::Continue
        };
        self.runs.list_runs(filter, &mut each, WITHIN).map_err(|error| error.to_string())?;
        Ok(all)
    }

    fn ours(&self) -> RunFilter {
        RunFilter { prefix: Some(self.prefix.clone()), ..RunFilter::default() }
    }
}

fn listed(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let mut names: Vec<String> = (0..70).map(|number| format!("n{number:03}")).collect();
    names.extend(["B", "\u{e9}", "a%", "a_"].map(str::to_owned));
    for name in &names {
        desk.started(name)?;
    }
    names.sort_unstable();
    same(&desk.list(&desk.ours())?, &names, "all of them")?;
    let after = Some(desk.run("n065")?);
    let rest = desk.list(&RunFilter { after, ..desk.ours() })?;
    same(&rest.first().map(String::as_str), &Some("n066"), "behind n065")?;
    let prefix = Some(format!("{}a_", desk.prefix));
    let with = desk.list(&RunFilter { prefix, ..RunFilter::default() })?;
    same(&with, &vec!["a_".to_owned()], "a prefix is taken as it is")?;
    let mut seen = 0;
    let mut each = |_| {
        seen += 1;
        if seen == 2 { Flow::Stop } else { Flow::Continue }
    };
    store.runs().list_runs(&desk.ours(), &mut each, WITHIN).map_err(|error| error.to_string())?;
    same(&seen, &2, "runs handed over before it was told to stop")
}

fn filtered(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let end = |status| RunEvent::StatusChanged { status, reason: None };
    for (run, workflow, status) in [
        ("a", "night", None),
        ("b", "night", Some(Status::Blocked)),
        ("c", "day", Some(Status::Succeeded)),
        ("d", "day", Some(Status::Failing)),
    ] {
        let id: RunId = desk.started_as(run, workflow, Tier::Normal)?.id;
        if let Some(status) = status {
            desk.land(&desk.append(&id, &[end(status)])?)?;
        }
    }
    let with = |statuses: &[Status], workflow: Option<Name>| {
        let names = desk.list(&RunFilter { statuses: statuses.to_vec(), workflow, ..desk.ours() });
        names.map(|names| names.concat())
    };
    same(&with(&[], None)?.as_str(), &"abcd", "all")?;
    same(&with(&[], Some(name("day")?))?.as_str(), &"cd", "a workflow's")?;
    same(&with(&[Status::Running, Status::Failing], None)?.as_str(), &"ad", "not ended")?;
    same(&with(&[Status::Succeeded, Status::Blocked], None)?.as_str(), &"bc", "some")?;
    same(&with(&[Status::Cancelled], None)?.as_str(), &"", "none")
}

fn quiet(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let (waiting, _) = (desk.started("waiting")?.id, desk.started("quiet")?);
    let later = desk.now()?.plus(std::time::Duration::from_secs(3_600));
    desk.put(&desk.wakeup(&waiting, "later", later)?)?;
    let quiet_for = |seconds| Some(std::time::Duration::from_secs(seconds));
    let quiet = desk.list(&RunFilter { quiet_for: quiet_for(0), ..desk.ours() })?;
    same(&quiet, &vec!["quiet".to_owned()], "quiet ones")?;
    let none = desk.list(&RunFilter { quiet_for: quiet_for(3_600), ..desk.ours() })?;
    same(&none, &Vec::new(), "for so long")?;
    same(
        &desk.list(&RunFilter { quiet_for: quiet_for(u64::MAX), ..desk.ours() })?,
        &Vec::new(),
        "ever",
    )
}
