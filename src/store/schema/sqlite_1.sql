-- Version 1. Small on purpose: SQLite reads this text again at every open.
CREATE TABLE store(
  one INTEGER PRIMARY KEY CHECK(one=1),
  schema_version INTEGER NOT NULL,
  store_id BLOB NOT NULL CHECK(length(store_id)=16),
  attempt_floor INTEGER NOT NULL,
  scratch INTEGER NOT NULL
) STRICT;
CREATE TABLE effects(
  effect_key TEXT NOT NULL PRIMARY KEY,
  record_version INTEGER NOT NULL,
  write_id BLOB NOT NULL,
  reservation_id BLOB NOT NULL,
  state TEXT NOT NULL,
  first_attempt INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  attempt_id TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  program TEXT NOT NULL,
  arguments INTEGER NOT NULL,
  command TEXT,
  lease_expires_at INTEGER,
  cause TEXT,
  reaped INTEGER NOT NULL,
  in_doubt INTEGER NOT NULL,
  doubted INTEGER NOT NULL,
  exit_code INTEGER,
  signal INTEGER,
  detail TEXT,
  resolved_by TEXT,
  reason TEXT,
  proven_failures INTEGER NOT NULL,
  run_id TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- So that what is stuck is found among a million settled ones.
CREATE INDEX unsettled ON effects(effect_key) WHERE state NOT IN ('committed','failed');
CREATE TABLE history(
  effect_key TEXT NOT NULL,
  revision INTEGER NOT NULL,
  write_id BLOB NOT NULL,
  outcome_id BLOB,
  type TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  recorded_at INTEGER NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY(effect_key, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE output(
  effect_key TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  stream TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  whole INTEGER NOT NULL,
  head BLOB NOT NULL,
  tail BLOB NOT NULL,
  PRIMARY KEY(effect_key, attempt, stream)
) STRICT, WITHOUT ROWID;
