CREATE TABLE IF NOT EXISTS namespaces (
  id         BINARY(16)     NOT NULL,
  name       VARBINARY(128) NOT NULL,
  created_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY namespaces_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
