-- One narrow row per QUEUED task, in the order of claiming. Lane 0 may be claimed now, by rank (100 − priority)
-- and age; lane 1 waits for due_at (rank 0 there) and is moved to lane 0 by the claim that finds it due.
CREATE TABLE IF NOT EXISTS ready_tasks (
  namespace_id BINARY(16)       NOT NULL,
  queue_id     BINARY(16)       NOT NULL,
  lane         TINYINT UNSIGNED NOT NULL,
  ready_rank   TINYINT UNSIGNED NOT NULL,
  due_at       DATETIME(6)      NOT NULL,
  task_id      BINARY(16)       NOT NULL,
  application_id BINARY(16)     NOT NULL,
  priority     SMALLINT         NOT NULL,
  PRIMARY KEY (namespace_id, queue_id, lane, ready_rank, due_at, task_id),
  KEY ready_tasks_application (namespace_id, application_id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
