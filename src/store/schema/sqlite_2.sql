-- Version 2: runs of workflows, and what waits for them. Nothing of version 1 is changed.
CREATE TABLE runs(
  run_id TEXT NOT NULL PRIMARY KEY,
  record_version INTEGER NOT NULL,
  write_id BLOB NOT NULL,
  workflow TEXT NOT NULL,
  tier INTEGER NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  definition TEXT NOT NULL,
  definition_hash BLOB NOT NULL,
  inputs TEXT NOT NULL,
  node_states TEXT NOT NULL,
  last_transition_seq INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  state_checksum BLOB NOT NULL
) STRICT;
-- So that what has not ended is found among a million that have.
CREATE INDEX unended ON runs(run_id) WHERE status NOT IN ('succeeded','failed','cancelled');
CREATE TABLE run_history(
  run_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  write_id BLOB NOT NULL,
  type TEXT NOT NULL,
  recorded_at INTEGER NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY(run_id, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE inbox(
  run_id TEXT NOT NULL,
  item_id BLOB NOT NULL,
  put_at INTEGER NOT NULL,
  wish TEXT NOT NULL,
  PRIMARY KEY(run_id, item_id)
) STRICT, WITHOUT ROWID;
-- Of both queues: nobody is handed a row before free_at, which is due_at, or the end of a claim. The
-- first index finds the next of one workflow, the second the next of all.
CREATE TABLE dispatches(
  run_id TEXT NOT NULL,
  node TEXT NOT NULL,
  put_id BLOB NOT NULL,
  effect_key TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  expected INTEGER,
  tier INTEGER NOT NULL,
  workflow TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  free_at INTEGER NOT NULL,
  claim_id BLOB,
  PRIMARY KEY(run_id, node)
) STRICT, WITHOUT ROWID;
CREATE INDEX dispatches_in_turn ON dispatches(tier, workflow, free_at);
CREATE INDEX dispatches_next ON dispatches(tier, free_at);
CREATE TABLE wakeups(
  run_id TEXT NOT NULL,
  wake_key TEXT NOT NULL,
  put_id BLOB NOT NULL,
  tier INTEGER NOT NULL,
  workflow TEXT NOT NULL,
  due_at INTEGER NOT NULL,
  free_at INTEGER NOT NULL,
  claim_id BLOB,
  requeues INTEGER NOT NULL,
  since_seq INTEGER NOT NULL,
  PRIMARY KEY(run_id, wake_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX wakeups_in_turn ON wakeups(tier, workflow, free_at);
CREATE INDEX wakeups_next ON wakeups(tier, free_at);
