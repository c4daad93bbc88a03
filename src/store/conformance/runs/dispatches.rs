//! Dispatches: put and taken away by ticks, handed out until then (WFL-8).
use std::time::Duration;

use super::{
    Check, Desk, HOLD, WITHIN, WriteId, blocked, dispatch, draw, ended, name, noted, same,
};
use crate::plan::workflow::{Claim, Dispatch, Expected, RunId, Taken};
use crate::store::{End, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a dispatch comes back as it was put", comes_back),
    ("a dispatch that is put replaces the node's", replaced),
    ("a dispatch is handed out when it is due, and again after its hold", handed_out),
    ("a dispatch is put in the hands of whose tick puts it", kept),
    ("a dispatch is given back by whoever has it, and by nobody else", postponed),
    ("a tick takes a dispatch away, and no other of the node", taken_away),
    ("a tick that is refused takes nothing away", refused),
    ("workflows take turns with their dispatches", in_turn),
];

impl Desk<'_> {
    /// A tick that puts these dispatches.
    fn dispatched(&self, run: &RunId, nodes: &[&str]) -> Result<Vec<Dispatch>, String> {
        let mut tick = self.append(run, &[noted("dispatched")])?;
        let (now, put_id) = (self.now()?, tick.next.write_id);
        for node in nodes {
            tick.dispatches_put.push(dispatch(run, node, put_id, now)?);
        }
        self.land(&tick)?;
        Ok(tick.dispatches_put)
    }

    fn there(&self, run: &RunId) -> Result<Vec<Dispatch>, String> {
        let mut all = self.load(run)?.dispatches;
        all.sort_by(|one, other| one.id.node.cmp(&other.id.node));
        Ok(all)
    }
}

fn comes_back(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let mut tick = desk.append(&run, &[noted("x")])?;
    let now = desk.now()?;
    let mut one = dispatch(&run, "a", tick.next.write_id, now)?;
    one.attempt = 77;
    one.expect = Expected::Revision(5);
    let other = dispatch(&run, "b", tick.next.write_id, now.plus(HOLD))?;
    tick.dispatches_put = vec![one.clone(), other.clone()];
    desk.land(&tick)?;
    same(&desk.there(&run)?, &vec![one, other], "the dispatches")
}

fn replaced(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    desk.dispatched(&run, &["a", "b"])?;
    same(&desk.dispatches_of(&run, HOLD)?.taken.len(), &2, "claimed")?;
    let again = desk.dispatched(&run, &["a"])?;
    let there = desk.there(&run)?;
    same(&there.len(), &2, "dispatches")?;
    same(&there.first(), &again.first(), "the node's newest, which nobody has")?;
    same(&desk.dispatches_of(&run, HOLD)?.taken.len(), &1, "it is handed out")
}

fn handed_out(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let mut tick = desk.append(&run, &[noted("x")])?;
    let (now, put_id) = (desk.now()?, tick.next.write_id);
    tick.dispatches_put =
        vec![dispatch(&run, "a", put_id, now)?, dispatch(&run, "b", put_id, now.plus(HOLD))?];
    desk.land(&tick)?;
    let first = desk.dispatches_of(&run, Duration::from_millis(400))?;
    let [taken] = first.taken.as_slice() else { return Err(format!("{:?}", first.taken)) };
    let claim = taken.claim.ok_or("it is in nobody's hands")?;
    same(&claim.until, &first.now.plus(Duration::from_millis(400)), "until")?;
    same(&taken.id, &tick.dispatches_put[0].id, "which")?;
    let mut second = desk.dispatches_of(&run, HOLD)?;
    desk.until("it is handed out again", || {
        if second.taken.is_empty() {
            second = desk.dispatches_of(&run, HOLD)?;
        }
        Ok(!second.taken.is_empty())
    })?;
    same(&(second.now >= claim.until), &true, "the hold had ended")?;
    same(&second.taken.len(), &1, "handed out again")
}

fn kept(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let mut tick = desk.append(&run, &[noted("x")])?;
    let now = desk.now()?;
    let mut dispatch = dispatch(&run, "a", tick.next.write_id, now)?;
    let claim = Claim { id: draw()?, until: now.plus(HOLD) };
    dispatch.claim = Some(claim);
    tick.dispatches_put = vec![dispatch.clone()];
    desk.land(&tick)?;
    same(&desk.there(&run)?, &vec![dispatch.clone()], "the dispatch")?;
    same(&desk.dispatches_of(&run, HOLD)?.taken, &Vec::new(), "it is handed to nobody else")?;
    let back = desk.runs.postpone_dispatch(&dispatch.id, claim.id, Duration::ZERO, WITHIN);
    ended(back, &End::Landed)?;
    same(&desk.dispatches_of(&run, HOLD)?.taken.len(), &1, "given back")
}

fn postponed(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    desk.dispatched(&run, &["a"])?;
    let taken = desk.dispatches_of(&run, HOLD)?.taken;
    let dispatch = taken.first().ok_or("nothing was claimed")?;
    let claim = dispatch.claim.ok_or("it is in nobody's hands")?;
    let give = |claim, after| desk.runs.postpone_dispatch(&dispatch.id, claim, after, WITHIN);
    ended(give(draw()?, Duration::ZERO), &End::Refused)?;
    ended(give(claim.id, HOLD), &End::Landed)?;
    same(&desk.dispatches_of(&run, HOLD)?.taken, &Vec::new(), "it is not due")?;
    ended(give(claim.id, Duration::ZERO), &End::Refused)?;
    let there = desk.there(&run)?;
    let due = there.first().map(|dispatch| (dispatch.claim, dispatch.due > claim.until));
    same(&due.map(|(claim, _)| claim), &Some(None), "nobody has it")
}

fn taken_away(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let put = desk.dispatched(&run, &["a", "b"])?;
    let mut stale = put[0].id.clone();
    stale.put_id = WriteId(draw()?);
    let mut tick = desk.append(&run, &[noted("x")])?;
    let take = |id| Taken { id, unstarted: None };
    let mut never = put[0].id.clone();
    never.node = name("never")?;
    tick.dispatches_deleted = vec![take(stale), take(put[1].id.clone()), take(never)];
    desk.land(&tick)?;
    same(&desk.there(&run)?, &vec![put[0].clone()], "what is left")
}

fn refused(store: &dyn Store) -> Result<(), String> {
    let desk = Desk::new(store)?;
    let run = desk.started("r")?.id;
    let put = desk.dispatched(&run, &["a"])?;
    let mut tick = desk.append(&run, &[noted("x")])?;
    tick.dispatches_deleted = vec![Taken { id: put[0].id.clone(), unstarted: None }];
    desk.land(&desk.append(&run, &[blocked("faster")])?)?;
    desk.refused(&tick)?;
    same(&desk.there(&run)?, &put, "what is left")
}

fn in_turn(store: &dyn Store) -> Result<(), String> {
    // WFL-12
    let desk = Desk::new(store)?;
    let workflows = [draw()?.to_string(), draw()?.to_string()];
    let mut all = Vec::new();
    for number in 0..22 {
        let workflow = &workflows[usize::from(number > 19)];
        let name = format!("{number:02}");
        let run = desk.started_as(&name, workflow, crate::plan::workflow::Tier::Background)?.id;
        desk.dispatched(&run, &["a"])?;
        all.push(run);
    }
    let mut order = Vec::new();
    desk.until("all of ours were handed out", || {
        let take = crate::store::runs::Take {
            only: None,
            limit: 1,
            claim: draw()?,
            hold: Duration::from_secs(10),
        };
        let claimed = desk.runs.claim_dispatches(&take, WITHIN).map_err(|e| e.to_string())?;
        let ours =
            claimed.taken.iter().filter_map(|taken| all.iter().position(|r| *r == taken.id.run));
        order.extend(ours);
        Ok(order.len() >= 22)
    })?;
    let early = order.iter().take(4).filter(|number| **number > 19).count();
    same(&early, &2, &format!("of the small one among the first four of {order:?}"))
}
