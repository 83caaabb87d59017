-- A version never changes, but for published_at, set once.
CREATE TABLE IF NOT EXISTS schedule_versions (
  namespace_id  BINARY(16)     NOT NULL,
  schedule_id   BINARY(16)     NOT NULL,
  version       INT UNSIGNED   NOT NULL,
  credential_id BINARY(16)     NOT NULL,
  cron          VARBINARY(256) NULL,
  every_seconds INT UNSIGNED   NULL,
  time_zone     VARBINARY(64)  NOT NULL,
  catch_up      ENUM('skip','one','all') NOT NULL,
  priority      SMALLINT       NOT NULL,
  retry_safety  ENUM('unsafe','safe') NOT NULL,
  max_attempts  INT UNSIGNED   NOT NULL,
  labels        BLOB           NULL,
  input         MEDIUMBLOB     NOT NULL,
  created_at    DATETIME(6)    NOT NULL,
  published_at  DATETIME(6)    NULL,
  PRIMARY KEY (namespace_id, schedule_id, version),
  CONSTRAINT schedule_versions_kind CHECK ((cron IS NULL) <> (every_seconds IS NULL))
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
