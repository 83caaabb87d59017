CREATE TABLE IF NOT EXISTS audit (
  namespace_id  BINARY(16)    NOT NULL,
  id            BINARY(16)    NOT NULL,
  at            DATETIME(6)   NOT NULL,
  credential_id BINARY(16)    NULL, -- NULL: an operator or a background loop
  action        VARBINARY(64) NOT NULL,
  resource_kind VARBINARY(32) NOT NULL,
  resource_id   BINARY(16)    NOT NULL,
  request_id    BINARY(16)    NULL,
  detail        BLOB          NULL,
  PRIMARY KEY (namespace_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
