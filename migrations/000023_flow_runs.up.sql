-- live = not final. due_at is set while ready steps could not be submitted, and says when to try again.
-- ending is set while a run that is not final lets nothing more begin.
CREATE TABLE IF NOT EXISTS flow_runs (
  namespace_id   BINARY(16)      NOT NULL,
  id             BINARY(16)      NOT NULL,
  flow_id        BINARY(16)      NOT NULL,
  version        INT UNSIGNED    NOT NULL,
  application_id BINARY(16)      NOT NULL,
  credential_id  BINARY(16)      NOT NULL,
  state          ENUM('RUNNING','PAUSED','WAITING_REVIEW','SUCCEEDED','FAILED','CANCELLED') NOT NULL,
  ending         ENUM('FAILED','CANCELLED') NULL,
  live           TINYINT(1)      NOT NULL,
  revision       BIGINT UNSIGNED NOT NULL,
  due_at         DATETIME(6)     NULL,
  created_at     DATETIME(6)     NOT NULL,
  updated_at     DATETIME(6)     NOT NULL,
  finished_at    DATETIME(6)     NULL,
  labels         BLOB            NULL,
  input          MEDIUMBLOB      NOT NULL,
  PRIMARY KEY (namespace_id, id),
  KEY flow_runs_flow (namespace_id, flow_id, id),
  KEY flow_runs_state (namespace_id, flow_id, state, id),
  KEY flow_runs_live (namespace_id, live, flow_id, version),
  KEY flow_runs_due (due_at),
  CONSTRAINT flow_runs_final CHECK ((state IN ('SUCCEEDED','FAILED','CANCELLED')) = (finished_at IS NOT NULL)),
  CONSTRAINT flow_runs_is_live CHECK (live = (finished_at IS NULL)),
  CONSTRAINT flow_runs_ending CHECK (ending IS NULL OR live = 1)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
