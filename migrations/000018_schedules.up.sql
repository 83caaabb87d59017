-- next_at is the oldest fire time that is not settled yet; NULL unless ENABLED, so that idle schedules are not in
-- schedules_due. Every change of it happens under the row's lock.
CREATE TABLE IF NOT EXISTS schedules (
  namespace_id   BINARY(16)      NOT NULL,
  id             BINARY(16)      NOT NULL,
  queue_id       BINARY(16)      NOT NULL,
  application_id BINARY(16)      NOT NULL,
  credential_id  BINARY(16)      NOT NULL, -- who published last; the tasks are its
  name           VARBINARY(128)  NOT NULL,
  revision       BIGINT UNSIGNED NOT NULL,
  state          ENUM('DRAFT','ENABLED','PAUSED') NOT NULL,
  version        INT UNSIGNED    NOT NULL, -- the published one, 0 = none
  draft_version  INT UNSIGNED    NOT NULL, -- 0 = none
  last_version   INT UNSIGNED    NOT NULL, -- the highest ever made
  next_at        DATETIME(6)     NULL,
  last_fire_at   DATETIME(6)     NULL,
  created_at     DATETIME(6)     NOT NULL,
  updated_at     DATETIME(6)     NOT NULL,
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY schedules_name (namespace_id, name),
  KEY schedules_queue (namespace_id, queue_id, id),
  KEY schedules_state (namespace_id, queue_id, state),
  KEY schedules_due (next_at, namespace_id, id),
  CONSTRAINT schedules_published CHECK ((state = 'DRAFT') = (version = 0)),
  CONSTRAINT schedules_next CHECK (state = 'ENABLED' OR next_at IS NULL)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
