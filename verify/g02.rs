//! G2: fail closed. On a store that cannot be used nothing runs, and the exit code says so.
use super::lab::{Halt, Lab};

/// Workload and claims.
pub fn show<'a>(lab: &'a Lab<'a>) -> Result<(), Halt> {
    let sick = lab.bench.scratch().sick().map_err(Halt::Broke)?;
    let mut shown = Vec::new();
    for store in sick {
        // Until the end of this round.
        let _held = store.holds.map(|hold| hold()).transpose().map_err(Halt::Broke)?;
        let key = lab.key(&store.what.replace(' ', "-"))?;
        // Out of time is a right end for some; the others are to be asked, however busy the server is.
        let within = if store.exits.contains(&69) { "500ms" } else { "10s" };
        let mut job = lab.run(&key).with(["--store-timeout", within]).rigged(store.rig);
        job.store = store.store;
        job.file_limit = store.file_limit;
        let mut worker = job.start()?;
        let ended = worker.end()?;
        // Here 69 is right where it is wanted, and no doubt anywhere.
        let right = ended.code.is_some_and(|code| store.exits.contains(&code));
        lab.demand(right, || {
            let said = ended.stderr.lines().next().unwrap_or("");
            format!("{}: exit {:?} instead of {:?} ({said})", store.what, ended.code, store.exits)
        });
        lab.demand(!ended.stderr.is_empty(), || format!("{}: nothing was said", store.what));
        if !store.rig.is_empty() {
            lab.window(store.what, lab.fell(&worker));
        }
        lab.executions(&key, 0)?;
        lab.count_round();
        shown.push(store.what);
    }
    lab.note(shown.join(", "));
    Ok(())
}
