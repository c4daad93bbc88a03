//! What every store does alike with a group of appends: their order, and writing them one by one
//! where the group cannot be (BAT-1, BAT-2).
use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::{Append, CouldNot, End, Reason, Store};

/// The appends of a group that are written, ordered by key: places in what was given. Two processes
/// that write the same keys take their rows in the same order, and neither waits for the other in a
/// ring. Of two appends to one key only the first is among them.
#[must_use]
pub fn in_order(appends: &[&Append]) -> Vec<usize> {
    let mut seen = HashSet::with_capacity(appends.len());
    let mut places: Vec<usize> =
        (0..appends.len()).filter(|at| seen.insert(appends[*at].next.key.as_str())).collect();
    places.sort_by(|a, b| appends[*a].next.key.as_str().cmp(appends[*b].next.key.as_str()));
    places
}

/// The end of an append that has another to the same key before it in its group.
pub fn twice() -> End {
    End::NotCommitted(CouldNot {
        reason: Reason::Busy,
        message: "another write of this key was in the same group".to_owned(),
        hint: None,
    })
}

/// Writes each in a transaction of its own, within what is left.
pub fn singly<S: Store + ?Sized>(store: &S, appends: &[&Append], within: Duration) -> Vec<End> {
    let began = Instant::now();
    let mut ends = vec![twice(); appends.len()];
    for at in in_order(appends) {
        ends[at] = store.append(appends[at], within.saturating_sub(began.elapsed()));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::effect::{Event, HistoryRow, Request, Reserved, WriteId, evolve};
    use crate::plan::key::{Fingerprint, Key};
    use crate::plan::time::Timestamp;
    use uuid::Uuid;

    fn append(key: &str) -> Append {
        let event = Event::Reserved(Reserved {
            attempt: 1,
            attempt_id: "a".to_owned(),
            request: Request {
                fingerprint: Fingerprint([0; 32]),
                program: "p".to_owned(),
                arguments: 0,
                command: None,
            },
            lease_expires_at: Timestamp(9),
            run_id: None,
        });
        let row = HistoryRow {
            revision: 1,
            write_id: WriteId(Uuid::from_u128(1)),
            outcome_id: None,
            attempt: 1,
            recorded_at: Timestamp(1),
            event,
        };
        let next = evolve(&Key::new(key).unwrap(), None, &row).unwrap();
        Append {
            found: None,
            next,
            history: vec![row],
            attempt_floor: 0,
            outputs: Vec::new(),
            dispatch: None,
        }
    }

    #[test]
    fn a_group_is_ordered_by_the_bytes_of_its_keys_and_has_each_once() {
        // BAT-1
        let appends = ["b", "a", "B", "a", "\u{e9}"].map(append);
        let appends: Vec<&Append> = appends.iter().collect();
        assert_eq!(in_order(&appends), [2, 1, 0, 4]);
    }
}
