CREATE TABLE IF NOT EXISTS applications (
  namespace_id BINARY(16)     NOT NULL,
  id           BINARY(16)     NOT NULL,
  name         VARBINARY(128) NOT NULL,
  created_at   DATETIME(6)    NOT NULL,
  PRIMARY KEY (namespace_id, id),
  UNIQUE KEY applications_name (namespace_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
