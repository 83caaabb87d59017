-- Ended attempts; a running one is in permits.
CREATE TABLE IF NOT EXISTS attempts (
  namespace_id  BINARY(16)      NOT NULL,
  id            BINARY(16)      NOT NULL,
  task_id       BINARY(16)      NOT NULL,
  number        INT UNSIGNED    NOT NULL,
  epoch         BIGINT UNSIGNED NOT NULL,
  digest        BINARY(32)      NOT NULL,
  outcome       ENUM('SUCCEEDED','FAILED','LOST','CANCELLED') NOT NULL,
  task_state    ENUM('QUEUED','RUNNING','SUCCEEDED','FAILED','CANCELLED','NEEDS_REVIEW') NOT NULL,
  task_revision BIGINT UNSIGNED NOT NULL,
  worker        VARBINARY(128)  NOT NULL,
  error_code    VARBINARY(512)  NULL,
  error_message VARBINARY(16384) NULL,
  started_at    DATETIME(6)     NOT NULL,
  ended_at      DATETIME(6)     NOT NULL,
  result        MEDIUMBLOB      NULL,
  PRIMARY KEY (namespace_id, id),
  KEY attempts_task (namespace_id, task_id, epoch)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
