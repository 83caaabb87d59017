-- Labels as they are looked up: newest first within a queue. The task's own copy answers reads.
CREATE TABLE IF NOT EXISTS task_labels (
  namespace_id BINARY(16)     NOT NULL,
  queue_id     BINARY(16)     NOT NULL,
  name         VARBINARY(64)  NOT NULL,
  value        VARBINARY(512) NOT NULL,
  task_id      BINARY(16)     NOT NULL,
  PRIMARY KEY (namespace_id, queue_id, name, value, task_id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
