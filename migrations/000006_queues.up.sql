CREATE TABLE IF NOT EXISTS queues (
  namespace_id      BINARY(16)      NOT NULL,
  id                BINARY(16)      NOT NULL,
  name              VARBINARY(128)  NOT NULL,
  revision          BIGINT UNSIGNED NOT NULL,
  paused            TINYINT(1)      NOT NULL,
  max_running       INT UNSIGNED    NOT NULL, -- 0 = no limit
  lease_duration_ms INT UNSIGNED    NOT NULL,
  created_at        DATETIME(6)     NOT NULL,
  updated_at        DATETIME(6)     NOT NULL,
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY queues_name (namespace_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
