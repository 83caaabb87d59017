-- What waits to be claimed is in ready_tasks, so that a claim never meets a finished task. What every task changes has
-- a fixed width and is never NULL, so that rows are updated in place: current_attempt_id is zero before the first attempt,
-- a finished task's end is its updated_at, and the result is its last attempt's unless a person gave one.
CREATE TABLE IF NOT EXISTS tasks (
  namespace_id        BINARY(16)      NOT NULL,
  id                  BINARY(16)      NOT NULL,
  queue_id            BINARY(16)      NOT NULL,
  application_id      BINARY(16)      NOT NULL,
  credential_id       BINARY(16)      NOT NULL,
  state               ENUM('QUEUED','RUNNING','SUCCEEDED','FAILED','CANCELLED','NEEDS_REVIEW') NOT NULL,
  revision            BIGINT UNSIGNED NOT NULL,
  priority            SMALLINT        NOT NULL,
  retry_safety        ENUM('unsafe','safe') NOT NULL,
  attempts            INT UNSIGNED    NOT NULL,
  max_attempts        INT UNSIGNED    NOT NULL,
  lease_epoch         BIGINT UNSIGNED NOT NULL,
  effect_uncertain    TINYINT(1)      NOT NULL,
  run_at              DATETIME(6)     NOT NULL,
  cancel_requested_at DATETIME(6)     NULL,
  current_attempt_id  BINARY(16)      NOT NULL DEFAULT x'00000000000000000000000000000000',
  error_code          VARBINARY(512)  NULL,
  error_message       VARBINARY(16384) NULL,
  created_at          DATETIME(6)     NOT NULL,
  updated_at          DATETIME(6)     NOT NULL,
  labels              BLOB            NULL,
  input               MEDIUMBLOB      NOT NULL,
  result              MEDIUMBLOB      NULL, -- given by a person who resolved the task
  PRIMARY KEY (namespace_id, id),
  KEY tasks_queue (namespace_id, queue_id, id),
  KEY tasks_state (namespace_id, queue_id, state, id),
  CONSTRAINT tasks_running CHECK (state <> 'RUNNING' OR current_attempt_id <> x'00000000000000000000000000000000')
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
