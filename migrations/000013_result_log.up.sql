-- The row of a stream is locked last and shortest; the order of its sequences is the order of commits.
-- wake_version moves with every change that sockets must notice without a new event.
CREATE TABLE IF NOT EXISTS result_streams (
  namespace_id BINARY(16)      NOT NULL,
  head         BIGINT UNSIGNED NOT NULL,
  boundary     BIGINT UNSIGNED NOT NULL, -- events up to this sequence were removed
  wake_version BIGINT UNSIGNED NOT NULL,
  generation   BINARY(16)      NOT NULL,
  PRIMARY KEY (namespace_id),
  CONSTRAINT result_streams_boundary CHECK (boundary <= head)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;

CREATE TABLE IF NOT EXISTS result_events (
  namespace_id       BINARY(16)      NOT NULL,
  sequence           BIGINT UNSIGNED NOT NULL,
  id                 BINARY(16)      NOT NULL,
  queue_id           BINARY(16)      NOT NULL,
  type               ENUM('task.cancelled','task.failed','task.needs_review','task.succeeded','task.requeued') NOT NULL,
  aggregate_id       BINARY(16)      NOT NULL,
  aggregate_revision BIGINT UNSIGNED NOT NULL,
  occurred_at        DATETIME(6)     NOT NULL,
  details            BLOB            NOT NULL,
  snapshot           MEDIUMBLOB      NOT NULL,
  PRIMARY KEY (namespace_id, sequence),
  KEY result_events_queue (namespace_id, queue_id, sequence, type)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
