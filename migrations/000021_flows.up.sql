CREATE TABLE IF NOT EXISTS flows (
  namespace_id BINARY(16)      NOT NULL,
  id           BINARY(16)      NOT NULL,
  name         VARBINARY(128)  NOT NULL,
  revision     BIGINT UNSIGNED NOT NULL,
  version      INT UNSIGNED    NOT NULL, -- the newest
  created_at   DATETIME(6)     NOT NULL,
  updated_at   DATETIME(6)     NOT NULL,
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY flows_name (namespace_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
