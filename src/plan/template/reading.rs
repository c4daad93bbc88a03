//! A template read backwards: which values make this key (DEC-19). A probe that is asked about the
//! wrong values says "not executed" of something else, which would free the key: so there is one
//! answer or none.
use std::collections::{BTreeMap, HashSet};

use super::{Piece, Template, check_value};

/// So many values are tried of names that have one already. Where names come again and again the ways
/// are too many to try all; then nothing is guessed, as where there are several.
const STEPS_MAX: u32 = 1_000_000;

/// What a key says of a template's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// No values make this key.
    No,
    /// These, and no others.
    One(BTreeMap<String, String>),
    /// More than one set of values makes it.
    Several,
}

impl Template {
    /// Which values make the text `key` of this template.
    #[must_use]
    pub fn read_back(&self, key: &str) -> Reading {
        let mut search = Search {
            pieces: &self.0,
            dead: HashSet::new(),
            values: BTreeMap::new(),
            found: Vec::new(),
            steps: 0,
        };
        search.from(0, key);
        if search.steps > STEPS_MAX {
            return Reading::Several;
        }
        let mut found = search.found;
        match (found.pop(), found.pop()) {
            (None, _) => Reading::No,
            (Some(values), None) => Reading::One(values),
            (Some(_), Some(_)) => Reading::Several,
        }
    }
}

struct Search<'a> {
    pieces: &'a [Piece],
    /// Places (a piece, how much of the key is left) from which there is no way to the end whatever
    /// the values: without them a long key would be tried in every possible way.
    dead: HashSet<(usize, usize)>,
    values: BTreeMap<&'a str, &'a str>,
    /// At most two: more need not be known.
    found: Vec<BTreeMap<String, String>>,
    /// Values tried so far of names that had one.
    steps: u32,
}

impl<'a> Search<'a> {
    /// Whether the pieces from `at` on make `rest`, whatever the values that stand already.
    fn from(&mut self, at: usize, rest: &'a str) -> bool {
        if self.dead.contains(&(at, rest.len())) {
            return false;
        }
        let leads_on = match self.pieces.get(at) {
            None if rest.is_empty() => {
                let values = self.values.iter();
                self.found.push(values.map(|(k, v)| ((*k).into(), (*v).into())).collect());
                true
            }
            None => false,
            Some(Piece::Text(text)) => {
                rest.strip_prefix(text.as_str()).is_some_and(|rest| self.from(at + 1, rest))
            }
            Some(Piece::Value { name, .. }) => self.value(at, name, rest),
        };
        if !leads_on {
            self.dead.insert((at, rest.len()));
        }
        leads_on
    }

    fn value(&mut self, at: usize, name: &'a str, rest: &'a str) -> bool {
        let mut leads_on = false;
        let ends = rest.char_indices().map(|(start, c)| start + c.len_utf8());
        for end in ends {
            if self.found.len() > 1 || self.steps > STEPS_MAX {
                return true;
            }
            let (value, rest) = rest.split_at(end);
            if check_value(value).is_err() || value.trim() != value {
                continue;
            }
            let before = self.values.get(name);
            // Without names that come again each place is left for good once, and that ends soon.
            self.steps = self.steps.saturating_add(u32::from(before.is_some()));
            match before {
                // Of a name that comes twice: this value is another one, and says nothing of whether
                // there is a way from here with others.
                Some(before) if *before != value => leads_on = true,
                Some(_) => leads_on |= self.from(at + 1, rest),
                None => {
                    self.values.insert(name, value);
                    leads_on |= self.from(at + 1, rest);
                    self.values.remove(name);
                }
            }
        }
        leads_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(template: &str, key: &str) -> Reading {
        Template::parse(template).unwrap().read_back(key)
    }

    fn one(values: &[(&str, &str)]) -> Reading {
        Reading::One(values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn a_key_that_one_set_of_values_makes_is_read() {
        // DEC-19
        assert_eq!(read("refund:{id}", "refund:txn_1"), one(&[("id", "txn_1")]));
        assert_eq!(read("refund:{id}", "refund:a:b"), one(&[("id", "a:b")]));
        assert_eq!(read("{a}:{b}", "x:y"), one(&[("a", "x"), ("b", "y")]));
        assert_eq!(read("{a}-{a}", "x-x-x-x"), one(&[("a", "x-x")]));
        assert_eq!(read("nightly", "nightly"), one(&[]));
        assert_eq!(read("{{{a}}}", "{x}"), one(&[("a", "x")]));
        assert_eq!(read("k:{a}", "k:\u{e4}\u{6771}"), one(&[("a", "\u{e4}\u{6771}")]));
    }

    #[test]
    fn a_key_that_several_sets_of_values_make_is_not_guessed_at() {
        // DEC-19
        assert_eq!(read("{a}:{b}", "x:y:z"), Reading::Several);
        assert_eq!(read("{a}{b}", "xyz"), Reading::Several);
        assert_eq!(read("{a}:{b}", &"x:".repeat(100)), Reading::Several);
        // Two ways that meet again: the way from there on is gone twice.
        assert_eq!(read("{a}:{b}|{c}", "x:y:z|w"), Reading::Several);
        assert_eq!(read("{a}|{b}:{c}|{a}", "w|x:y:z|w"), Reading::Several);
    }

    #[test]
    fn a_key_that_no_values_make_is_none_of_it() {
        // DEC-19: a value is never empty, and has no space at its ends.
        for (template, key) in [
            ("refund:{id}", "refund:"),
            ("refund:{id}", "refunds:1"),
            ("refund:{id}", "xrefund:1"),
            ("refund:{id}:x", "refund:1"),
            ("refund:{id}", "refund: 1"),
            ("{a}-{a}", "x-y"),
            ("nightly", "nightly2"),
        ] {
            assert_eq!(read(template, key), Reading::No, "{template} {key}");
        }
    }

    #[test]
    fn a_long_key_is_read_at_once() {
        let template = "{a}x{b}x{c}x{d}x{e}x{f}x{g}y";
        assert_eq!(read(template, &"x".repeat(512)), Reading::No);
        assert_eq!(read("{a}x{a}x{b}x{b}x{c}y", &"x".repeat(200)), Reading::No);
        // Names that come again and again: too many ways to try all of them, and so none is said.
        let again = "{a}{b}{c}{d}{e}".repeat(4) + "y";
        assert_eq!(read(&again, &"x".repeat(300)), Reading::Several);
    }
}
