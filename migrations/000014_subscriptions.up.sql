CREATE TABLE IF NOT EXISTS subscriptions (
  namespace_id    BINARY(16)       NOT NULL,
  id              BINARY(16)       NOT NULL,
  queue_id        BINARY(16)       NOT NULL,
  application_id  BINARY(16)       NOT NULL,
  credential_id   BINARY(16)       NOT NULL,
  name            VARBINARY(128)   NOT NULL,
  revision        BIGINT UNSIGNED  NOT NULL,
  enabled         TINYINT(1)       NOT NULL,
  types           TINYINT UNSIGNED NOT NULL, -- bits: 1 cancelled, 2 failed, 4 needs_review, 8 succeeded
  cursor_sequence BIGINT UNSIGNED  NOT NULL,
  pending_count   INT UNSIGNED     NOT NULL,
  max_pending     INT UNSIGNED     NOT NULL,
  max_attempts    INT UNSIGNED     NOT NULL,
  created_at      DATETIME(6)      NOT NULL,
  updated_at      DATETIME(6)      NOT NULL,
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY subscriptions_name (namespace_id, name),
  KEY subscriptions_owner (namespace_id, credential_id, queue_id, created_at, id),
  KEY subscriptions_queue (namespace_id, queue_id),
  CONSTRAINT subscriptions_pending CHECK (pending_count <= max_pending)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
