//! A run as flat columns, and back: the same on every store. The last of them is the checksum of
//! all the others, so that a row which was damaged stops its run, by its name, and no other.
use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::plan::effect::WriteId;
use crate::plan::time::Timestamp;
use crate::plan::workflow::{
    Hash, Name, Progress, Run, RunEvent, RunHistoryRow, RunId, Status, Tier, Wish,
};
use crate::store::row::{Malformed, integer, natural};

/// A run's columns, in their order. Times are microseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns of a run, by their names in the specification")]
pub struct RunRow {
    pub run_id: String,
    pub record_version: i64,
    pub write_id: Uuid,
    pub workflow: String,
    pub tier: i64,
    pub status: String,
    pub reason: Option<String>,
    pub definition: String,
    pub definition_hash: [u8; 32],
    pub inputs: String,
    pub node_states: String,
    pub last_transition_seq: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub state_checksum: [u8; 32],
}

impl RunRow {
    /// The columns of a run.
    ///
    /// # Errors
    /// [`Malformed`] for one that no store can hold.
    pub fn of(run: &Run) -> Result<Self, Malformed> {
        let mut row = Self {
            run_id: run.id.as_str().to_owned(),
            record_version: integer("record_version", run.revision)?,
            write_id: run.write_id.0,
            workflow: run.workflow.as_str().to_owned(),
            tier: run.tier.number(),
            status: run.status.name().to_owned(),
            reason: run.reason.clone(),
            definition: run.definition.clone(),
            definition_hash: run.definition_hash.0,
            inputs: json("inputs", &run.inputs)?,
            node_states: json("node_states", &run.progress)?,
            last_transition_seq: integer("last_transition_seq", run.last_transition_seq)?,
            created_at: run.created_at.0,
            updated_at: run.updated_at.0,
            state_checksum: [0; 32],
        };
        row.state_checksum = row.checksum();
        Ok(row)
    }

    /// The run of these columns.
    ///
    /// # Errors
    /// [`Malformed`], with the first column that cannot be read; `state_checksum` if the others are
    /// not what was written.
    pub fn run(self) -> Result<Run, Malformed> {
        if self.checksum() != self.state_checksum {
            let why = "it does not match the row: the row is damaged, or was changed by hand";
            return Err(Malformed::new("state_checksum", why));
        }
        let status = Status::of(&self.status)
            .ok_or_else(|| Malformed::new("status", format!("{:?} is none", self.status)))?;
        let tier = Tier::of(self.tier)
            .ok_or_else(|| Malformed::new("tier", format!("{} is none", self.tier)))?;
        let id =
            RunId::new(self.run_id).map_err(|error| Malformed::new("run_id", error.to_string()))?;
        let workflow = Name::new(self.workflow)
            .map_err(|error| Malformed::new("workflow", error.to_string()))?;
        Ok(Run {
            id,
            revision: natural("record_version", self.record_version)?,
            write_id: WriteId(self.write_id),
            workflow,
            tier,
            status,
            reason: self.reason,
            definition: self.definition,
            definition_hash: Hash(self.definition_hash),
            inputs: parsed::<BTreeMap<Name, String>>("inputs", &self.inputs)?,
            progress: parsed::<Progress>("node_states", &self.node_states)?,
            last_transition_seq: natural("last_transition_seq", self.last_transition_seq)?,
            created_at: Timestamp(self.created_at),
            updated_at: Timestamp(self.updated_at),
        })
    }

    /// The checksum of all other columns: SHA-256 over each with its length before it, a column that
    /// is null being told from one that is empty.
    #[must_use]
    pub fn checksum(&self) -> [u8; 32] {
        let mut sum = Sha256::new();
        let mut add = |bytes: Option<&[u8]>| {
            let length = bytes.map_or(u64::MAX, |bytes| u64::try_from(bytes.len()).unwrap_or(0));
            sum.update(length.to_be_bytes());
            sum.update(bytes.unwrap_or_default());
        };
        add(Some(self.run_id.as_bytes()));
        add(Some(&self.record_version.to_be_bytes()));
        add(Some(self.write_id.as_bytes()));
        add(Some(self.workflow.as_bytes()));
        add(Some(&self.tier.to_be_bytes()));
        add(Some(self.status.as_bytes()));
        add(self.reason.as_deref().map(str::as_bytes));
        add(Some(self.definition.as_bytes()));
        add(Some(&self.definition_hash));
        add(Some(self.inputs.as_bytes()));
        add(Some(self.node_states.as_bytes()));
        add(Some(&self.last_transition_seq.to_be_bytes()));
        add(Some(&self.created_at.to_be_bytes()));
        add(Some(&self.updated_at.to_be_bytes()));
        sum.finalize().into()
    }
}

/// One event of a run as flat columns; its run stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns of a run's history, by their names")]
pub struct RunEventRow {
    pub revision: i64,
    pub write_id: Uuid,
    pub kind: String,
    pub recorded_at: i64,
    pub data: String,
}

impl RunEventRow {
    /// The columns of an event.
    ///
    /// # Errors
    /// [`Malformed`] for one that no store can hold.
    pub fn of(row: &RunHistoryRow) -> Result<Self, Malformed> {
        Ok(Self {
            revision: integer("revision", row.revision)?,
            write_id: row.write_id.0,
            kind: row.event.kind().to_owned(),
            recorded_at: row.recorded_at.0,
            data: row.event.data(),
        })
    }

    /// The event of these columns.
    ///
    /// # Errors
    /// [`Malformed`], with the first column that cannot be read.
    pub fn event(self) -> Result<RunHistoryRow, Malformed> {
        Ok(RunHistoryRow {
            revision: natural("revision", self.revision)?,
            write_id: WriteId(self.write_id),
            recorded_at: Timestamp(self.recorded_at),
            event: RunEvent::parse(&self.kind, &self.data)
                .map_err(|error| Malformed::new("data", error.to_string()))?,
        })
    }
}

/// What is wanted of a run, as the text that stores keep.
///
/// # Errors
/// [`Malformed`], which no wish is.
pub fn wish_text(wish: &Wish) -> Result<String, Malformed> {
    json("wish", wish)
}

/// Reads it back.
///
/// # Errors
/// [`Malformed`] for what this binary cannot read.
pub fn wish(text: &str) -> Result<Wish, Malformed> {
    parsed("wish", text)
}

fn json<T: serde::Serialize>(column: &'static str, value: &T) -> Result<String, Malformed> {
    serde_json::to_string(value).map_err(|error| Malformed::new(column, error.to_string()))
}

fn parsed<T: serde::de::DeserializeOwned>(
    column: &'static str,
    text: &str,
) -> Result<T, Malformed> {
    serde_json::from_str(text).map_err(|error| Malformed::new(column, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::effect::WriteId;
    use crate::plan::key::Key;
    use crate::plan::workflow::{Asked, Expected, InboxId, Node, NodeState};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn run() -> Run {
        let key = Key::new("r/a").unwrap();
        let detail = "exited 22".to_owned();
        let states = [
            ("a", NodeState::Committed { key: key.clone(), attempt: 1, revision: 3 }),
            (
                "b",
                NodeState::Ambiguous {
                    key: key.clone(),
                    attempt: 2,
                    revision: 3,
                    detail,
                    reopened: true,
                },
            ),
            ("c", NodeState::Waiting { signal: Some(name("go")), until: Some(Timestamp(9)) }),
            (
                "d",
                NodeState::Dispatched {
                    key,
                    attempt: 1,
                    fingerprint: crate::plan::key::Fingerprint([1; 32]),
                    expect: Expected::Revision(4),
                    due: Timestamp(2),
                },
            ),
            ("e", NodeState::Pending),
        ];
        let node = |state| Node { retries: 1, unstarted: 0, state };
        let nodes = states.into_iter().map(|(of, state)| (name(of), node(state))).collect();
        Run {
            id: RunId::new("r").unwrap(),
            revision: 7,
            write_id: WriteId(Uuid::from_u128(1)),
            workflow: name("nightly"),
            tier: Tier::Normal,
            status: Status::Blocked,
            reason: Some("b".to_owned()),
            definition: "{}".to_owned(),
            definition_hash: Hash([3; 32]),
            inputs: BTreeMap::from([(name("day"), "\u{e9}".to_owned())]),
            progress: Progress {
                nodes,
                signals: BTreeMap::from([(name("go"), String::new())]),
                cancel: Some(Asked { by: "me".to_owned(), reason: None }),
            },
            last_transition_seq: 6,
            created_at: Timestamp(-1),
            updated_at: Timestamp(1_796_033_700_123_456),
        }
    }

    #[test]
    fn a_run_comes_back_as_it_was() {
        let row = RunRow::of(&run()).unwrap();
        assert_eq!(row.run().unwrap(), run());
    }

    #[test]
    fn a_row_that_was_changed_is_found_by_its_checksum() {
        // WFL-4: whatever the column is.
        let good = RunRow::of(&run()).unwrap();
        let changes: [fn(&mut RunRow); 12] = [
            |row| row.record_version += 1,
            |row| row.write_id = Uuid::from_u128(2),
            |row| row.workflow.push('x'),
            |row| row.tier = 0,
            |row| row.status = "running".to_owned(),
            |row| row.reason = None,
            |row| row.definition.push(' '),
            |row| row.definition_hash[0] ^= 1,
            |row| row.inputs = "{}".to_owned(),
            |row| row.node_states = "{\"nodes\":{}}".to_owned(),
            |row| row.last_transition_seq += 1,
            |row| row.updated_at += 1,
        ];
        for change in changes {
            let mut row = good.clone();
            change(&mut row);
            assert_eq!(row.run().unwrap_err().column, "state_checksum");
        }
    }

    #[test]
    fn every_event_comes_back_as_it_was() {
        let node = name("a");
        let key = Key::new("r/a").unwrap();
        let item = InboxId(Uuid::from_u128(4));
        let events = [
            RunEvent::NodePassed { node: node.clone() },
            RunEvent::CancelAsked {
                item,
                asked: Asked { by: "me".to_owned(), reason: Some("late".to_owned()) },
            },
            RunEvent::NodeCommitted { node, key, attempt: 1, revision: 3 },
            RunEvent::Noted { item: None, what: "x".to_owned() },
            RunEvent::StatusChanged { status: Status::Running, reason: None },
        ];
        for (event, revision) in events.into_iter().zip(1..) {
            let write_id = WriteId(Uuid::from_u128(1));
            let row = RunHistoryRow { revision, write_id, recorded_at: Timestamp(5), event };
            assert_eq!(RunEventRow::of(&row).unwrap().event().unwrap(), row);
        }
    }
}
