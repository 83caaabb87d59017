-- The current try of each step, by its place in the definition.
CREATE TABLE IF NOT EXISTS flow_steps (
  namespace_id  BINARY(16)       NOT NULL,
  run_id        BINARY(16)       NOT NULL,
  step          TINYINT UNSIGNED NOT NULL,
  state         ENUM('WAITING','SUBMITTED','SUCCEEDED','FAILED','CANCELLED','NEEDS_REVIEW','SKIPPED') NOT NULL,
  try_number    INT UNSIGNED     NOT NULL,
  submitted_at  DATETIME(6)      NULL,
  finished_at   DATETIME(6)      NULL,
  error_code    VARBINARY(512)   NULL, -- of a step that failed before it had a task
  error_message VARBINARY(16384) NULL,
  PRIMARY KEY (namespace_id, run_id, step)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;

-- The task of each try: found by task when the log tells of it, and at most one a try.
CREATE TABLE IF NOT EXISTS flow_tasks (
  namespace_id BINARY(16)       NOT NULL,
  task_id      BINARY(16)       NOT NULL,
  run_id       BINARY(16)       NOT NULL,
  step         TINYINT UNSIGNED NOT NULL,
  try_number   INT UNSIGNED     NOT NULL,
  PRIMARY KEY (namespace_id, task_id),
  UNIQUE KEY flow_tasks_try (namespace_id, run_id, step, try_number)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
