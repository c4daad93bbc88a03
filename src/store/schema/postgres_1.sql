-- Version 1. `:schema` stands for the schema's name, quoted. Nothing here is left to the server: no
-- default, no trigger, no type whose text it may rewrite, no order of letters but that of their bytes.
CREATE TABLE :schema.store(
  one integer NOT NULL PRIMARY KEY CHECK (one = 1),
  schema_version bigint NOT NULL,
  store_id bytea NOT NULL CHECK (octet_length(store_id) = 16),
  attempt_floor bigint NOT NULL,
  scratch boolean NOT NULL
);
CREATE TABLE :schema.effects(
  effect_key text COLLATE pg_catalog."C" NOT NULL PRIMARY KEY,
  record_version bigint NOT NULL,
  write_id bytea NOT NULL,
  reservation_id bytea NOT NULL,
  state text COLLATE pg_catalog."C" NOT NULL,
  first_attempt bigint NOT NULL,
  attempt bigint NOT NULL,
  attempt_id text COLLATE pg_catalog."C" NOT NULL,
  fingerprint bytea NOT NULL,
  program text COLLATE pg_catalog."C" NOT NULL,
  arguments bigint NOT NULL,
  command text COLLATE pg_catalog."C",
  lease_expires_at bigint,
  cause text COLLATE pg_catalog."C",
  reaped boolean NOT NULL,
  in_doubt boolean NOT NULL,
  doubted boolean NOT NULL,
  exit_code bigint,
  signal bigint,
  detail text COLLATE pg_catalog."C",
  resolved_by text COLLATE pg_catalog."C",
  reason text COLLATE pg_catalog."C",
  proven_failures bigint NOT NULL,
  run_id text COLLATE pg_catalog."C",
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL
);
-- So that what is stuck is found among a million settled ones.
CREATE INDEX unsettled ON :schema.effects(effect_key)
  WHERE state IN ('reserved', 'executing', 'ambiguous');
CREATE TABLE :schema.history(
  effect_key text COLLATE pg_catalog."C" NOT NULL,
  revision bigint NOT NULL,
  write_id bytea NOT NULL,
  outcome_id bytea,
  type text COLLATE pg_catalog."C" NOT NULL,
  attempt bigint NOT NULL,
  recorded_at bigint NOT NULL,
  data text COLLATE pg_catalog."C" NOT NULL,
  PRIMARY KEY (effect_key, revision)
);
CREATE TABLE :schema.output(
  effect_key text COLLATE pg_catalog."C" NOT NULL,
  attempt bigint NOT NULL,
  stream text COLLATE pg_catalog."C" NOT NULL,
  bytes bigint NOT NULL,
  whole boolean NOT NULL,
  head bytea NOT NULL,
  tail bytea NOT NULL,
  PRIMARY KEY (effect_key, attempt, stream)
);
