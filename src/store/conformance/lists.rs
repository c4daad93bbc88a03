//! Listings: which records, in which order, and what stands beside them.
use std::time::Duration;

use super::{
    Check, Flow, Lab, Listed, Stream, WITHIN, ambiguated, began, committed, failed, renewed,
    reserved, same,
};
use crate::plan::effect::{Cause, Event, FailedBy};
use crate::plan::protocol::{Captured, Kept};
use crate::plan::time::Timestamp;
use crate::store::{Ask, Filter, Sizes, Store};

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a listing is in the order of the keys' bytes", order),
    ("a prefix is taken as it is", prefix),
    ("a listing goes on after a key", after),
    ("a listing stops where it is told to", stops),
    ("one key can be listed", one_key),
    ("states are told apart", states),
    ("what is stuck is AMBIGUOUS or lapsed", stuck),
    ("age is that of the newest event", older_than),
    ("every condition must hold", conditions_together),
    ("a record is listed with its began event and sizes", evidence),
];

impl Lab<'_> {
    fn names(&self, filter: &Filter) -> Result<Vec<String>, String> {
        let names = self.list(filter)?.into_iter().map(|shown| {
            let key = shown.record.key.as_str();
            key.strip_prefix(&self.prefix).unwrap_or(key).to_owned()
        });
        Ok(names.collect())
    }

    fn ours(&self) -> Filter {
        Filter { prefix: Some(self.prefix.clone()), ..Filter::default() }
    }

    fn now(&self) -> Result<Timestamp, String> {
        Ok(self.load(&self.key("now")?, Ask::Nothing)?.now)
    }

    /// One record of each name.
    fn fill(&self, names: &[&str]) -> Result<(), String> {
        let now = self.now()?;
        for name in names {
            self.put(&self.key(name)?, &[reserved(1, now)])?;
        }
        Ok(())
    }
}

fn order(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let mut names = ["b", "B", "a", "\u{e9}", "e\u{301}", "-", "a:b", "aa", "~", "z z"];
    lab.fill(&names)?;
    names.sort_unstable_by_key(|name| name.as_bytes());
    same(&lab.names(&lab.ours())?, &names.map(str::to_owned).to_vec(), "the keys")
}

fn prefix(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    lab.fill(&["a%b", "a_b", "aXb", "A%b", "a%", "a", "b"])?;
    let with = |prefix: &str| {
        lab.names(&Filter { prefix: Some(format!("{}{prefix}", lab.prefix)), ..Filter::default() })
    };
    same(&with("a%")?, &vec!["a%".to_owned(), "a%b".to_owned()], "a%")?;
    same(&with("a_")?, &vec!["a_b".to_owned()], "a_")?;
    same(&with("c")?, &Vec::new(), "c")?;
    same(&with("")?.len(), &7, "all")
}

fn after(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    // More than any page of any store.
    let names: Vec<String> = (0..700).map(|number| format!("{number:04}")).collect();
    let listed: Vec<&str> = names.iter().map(String::as_str).collect();
    lab.fill(&listed)?;
    same(&lab.names(&lab.ours())?, &names, "all of them")?;
    let from = |after: &str, filter: Filter| -> Result<Vec<String>, String> {
        lab.names(&Filter { after: Some(lab.key(after)?), ..filter })
    };
    same(&from("0697", lab.ours())?, &names[698..].to_vec(), "after 0697")?;
    same(&from("0699", lab.ours())?, &Vec::new(), "after the last")?;
    let narrow = Filter { prefix: Some(format!("{}069", lab.prefix)), ..Filter::default() };
    same(&from("0500", narrow)?, &names[690..].to_vec(), "before the prefix")
}

fn stops(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    lab.fill(&["a", "b", "c"])?;
    let mut seen = 0;
    let mut each = |_: Listed| {
        seen += 1;
        if seen == 2 { Flow::Stop } else { Flow::Continue }
    };
    store.list(&lab.ours(), &mut each, WITHIN).map_err(|error| error.to_string())?;
    same(&seen, &2, "records handed over")
}

fn one_key(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    lab.fill(&["a", "ab", "b"])?;
    let only = |name: &str| -> Result<Vec<String>, String> {
        lab.names(&Filter { key: Some(lab.key(name)?), ..Filter::default() })
    };
    same(&only("a")?, &vec!["a".to_owned()], "one key")?;
    same(&only("c")?, &Vec::new(), "one that is not there")
}

/// One record in every state, the leases of `live` ones far ahead and the others' over.
fn one_of_each(lab: &Lab<'_>) -> Result<Timestamp, String> {
    let now = lab.now()?;
    let ahead = now.plus(Duration::from_secs(3_600));
    let over = Timestamp(now.0 - 1);
    let histories: [(&str, Vec<Event>); 7] = [
        ("ambiguous", vec![reserved(1, over), began(over), ambiguated(Cause::Exit)]),
        ("committed", vec![reserved(1, over), began(over), committed()]),
        ("executing", vec![reserved(1, ahead), began(ahead)]),
        ("failed", vec![reserved(1, over), began(over), failed(FailedBy::OwnWord)]),
        ("lapsed-executing", vec![reserved(1, ahead), began(ahead), renewed(over)]),
        ("lapsed-reserved", vec![reserved(1, over)]),
        ("reserved", vec![reserved(1, ahead)]),
    ];
    for (name, events) in histories {
        lab.put(&lab.key(name)?, &events)?;
    }
    Ok(now)
}

fn in_states(lab: &Lab<'_>, states: &[&str]) -> Result<Vec<String>, String> {
    lab.names(&Filter {
        states: states.iter().map(|&state| state.to_owned()).collect(),
        ..lab.ours()
    })
}

fn states(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    one_of_each(&lab)?;
    for (asked, wanted) in [
        (&["committed"][..], &["committed"][..]),
        (&["failed"], &["failed"]),
        (&["ambiguous"], &["ambiguous"]),
        (&["reserved"], &["lapsed-reserved", "reserved"]),
        (&["executing"], &["executing", "lapsed-executing"]),
        (&["failed", "ambiguous"], &["ambiguous", "failed"]),
        (&["nonsense"], &[]),
    ] {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        same(&in_states(&lab, asked)?, &wanted, &asked.join(","))?;
    }
    Ok(())
}

fn stuck(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    one_of_each(&lab)?;
    let stuck = Filter { stuck: true, ..lab.ours() };
    let wanted = ["ambiguous", "lapsed-executing", "lapsed-reserved"].map(str::to_owned);
    same(&lab.names(&stuck)?, &wanted.to_vec(), "what is stuck")?;
    for shown in lab.list(&stuck)? {
        same(&shown.record.is_stuck(shown.now), &true, "stuck by the clock beside it")?;
    }
    Ok(())
}

fn older_than(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    for (name, seconds) in [("day", 86_400), ("hour", 3_600), ("new", 0)] {
        let key = lab.key(name)?;
        let mut found = lab.load(&key, Ask::Nothing)?;
        found.now = Timestamp(found.now.0 - seconds * 1_000_000);
        let append = super::fold(&key, &found, &[reserved(1, found.now)])?;
        super::land(store, &append)?;
    }
    let older =
        |age: u64| lab.names(&Filter { older_than: Some(Duration::from_secs(age)), ..lab.ours() });
    same(&older(7_200)?, &vec!["day".to_owned()], "two hours")?;
    same(&older(60)?.len(), &2, "a minute")?;
    same(&older(0)?.len(), &3, "any age")?;
    same(&older(u64::MAX)?, &Vec::new(), "older than the clock")
}

fn conditions_together(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    one_of_each(&lab)?;
    let filter = Filter {
        stuck: true,
        states: vec!["reserved".to_owned(), "committed".to_owned()],
        older_than: Some(Duration::ZERO),
        after: Some(lab.key("committed")?),
        ..lab.ours()
    };
    same(&lab.names(&filter)?, &vec!["lapsed-reserved".to_owned()], "all at once")
}

fn evidence(store: &dyn Store) -> Result<(), String> {
    let lab = Lab::new(store)?;
    let key = lab.key("k")?;
    let now = lab.now()?;
    let kept = |attempt, stream, bytes| Kept {
        attempt,
        stream,
        captured: Captured { head: b"12345".to_vec(), tail: Vec::new(), bytes, whole: bytes == 5 },
    };
    let first = [reserved(1, now), began(now), failed(FailedBy::OwnWord)];
    lab.put_with(&key, &first, vec![kept(1, Stream::Stdout, 77)])?;
    lab.put(&key, &[reserved(2, now)])?;
    let shown = |lab: &Lab<'_>| -> Result<_, String> {
        let mut all = lab.list(&lab.ours())?;
        same(&all.len(), &1, "records")?;
        Ok(all.remove(0))
    };
    let before = shown(&lab)?;
    same(&before.began, &None, "the second attempt has not begun")?;
    same(&before.stdout, &Sizes::default(), "and has no output")?;
    lab.put(&key, &[began(now), renewed(now), renewed(now)])?;
    let outputs = vec![kept(2, Stream::Stdout, 5), kept(2, Stream::Stderr, 6)];
    let last = lab.put_with(&key, &[committed()], outputs)?;
    let after = shown(&lab)?;
    same(&after.record, &last, "the record")?;
    let began = after.began.map(|event| (event.revision, event.attempt));
    same(&began, &Some((5, 2)), "its began event")?;
    let sizes = |bytes, truncated| Sizes { bytes, truncated };
    same(&after.stdout, &sizes(5, false), "stdout")?;
    same(&after.stderr, &sizes(6, true), "stderr")
}
