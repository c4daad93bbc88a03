-- Version 2: runs of workflows, and what waits for them. Nothing of version 1 is changed.
CREATE TABLE :schema.runs(
  run_id text COLLATE pg_catalog."C" NOT NULL PRIMARY KEY,
  record_version bigint NOT NULL,
  write_id bytea NOT NULL,
  workflow text COLLATE pg_catalog."C" NOT NULL,
  tier bigint NOT NULL,
  status text COLLATE pg_catalog."C" NOT NULL,
  reason text COLLATE pg_catalog."C",
  definition text COLLATE pg_catalog."C" NOT NULL,
  definition_hash bytea NOT NULL,
  inputs text COLLATE pg_catalog."C" NOT NULL,
  node_states text COLLATE pg_catalog."C" NOT NULL,
  last_transition_seq bigint NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  state_checksum bytea NOT NULL
);
-- So that what has not ended is found among a million that have.
CREATE INDEX unended ON :schema.runs(run_id)
  WHERE status NOT IN ('succeeded', 'failed', 'cancelled');
CREATE TABLE :schema.run_history(
  run_id text COLLATE pg_catalog."C" NOT NULL,
  revision bigint NOT NULL,
  write_id bytea NOT NULL,
  type text COLLATE pg_catalog."C" NOT NULL,
  recorded_at bigint NOT NULL,
  data text COLLATE pg_catalog."C" NOT NULL,
  PRIMARY KEY (run_id, revision)
);
CREATE TABLE :schema.inbox(
  run_id text COLLATE pg_catalog."C" NOT NULL,
  item_id bytea NOT NULL,
  put_at bigint NOT NULL,
  wish text COLLATE pg_catalog."C" NOT NULL,
  PRIMARY KEY (run_id, item_id)
);
-- Of both queues: nobody is handed a row before free_at, which is due_at, or the end of a claim. The
-- first index finds the next of one workflow, the second the next of all. Their rows come and go, so
-- they are vacuumed earlier than others.
CREATE TABLE :schema.dispatches(
  run_id text COLLATE pg_catalog."C" NOT NULL,
  node text COLLATE pg_catalog."C" NOT NULL,
  put_id bytea NOT NULL,
  effect_key text COLLATE pg_catalog."C" NOT NULL,
  attempt bigint NOT NULL,
  expected bigint,
  tier bigint NOT NULL,
  workflow text COLLATE pg_catalog."C" NOT NULL,
  due_at bigint NOT NULL,
  free_at bigint NOT NULL,
  claim_id bytea,
  -- Written by a reserve that is held to this dispatch, so that whoever deletes it waits for that,
  -- and under a stricter isolation level than ours is refused, whatever it sees.
  reserved_by bytea,
  PRIMARY KEY (run_id, node)
) WITH (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 80);
CREATE INDEX dispatches_in_turn ON :schema.dispatches(tier, workflow, free_at);
CREATE INDEX dispatches_next ON :schema.dispatches(tier, free_at);
CREATE TABLE :schema.wakeups(
  run_id text COLLATE pg_catalog."C" NOT NULL,
  wake_key text COLLATE pg_catalog."C" NOT NULL,
  put_id bytea NOT NULL,
  tier bigint NOT NULL,
  workflow text COLLATE pg_catalog."C" NOT NULL,
  due_at bigint NOT NULL,
  free_at bigint NOT NULL,
  claim_id bytea,
  requeues bigint NOT NULL,
  since_seq bigint NOT NULL,
  PRIMARY KEY (run_id, wake_key)
) WITH (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 80);
CREATE INDEX wakeups_in_turn ON :schema.wakeups(tier, workflow, free_at);
CREATE INDEX wakeups_next ON :schema.wakeups(tier, free_at);
