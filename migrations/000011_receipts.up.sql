CREATE TABLE IF NOT EXISTS receipts (
  namespace_id    BINARY(16)     NOT NULL,
  credential_id   BINARY(16)     NOT NULL,
  idempotency_key VARBINARY(128) NOT NULL,
  fingerprint     BINARY(32)     NOT NULL,
  response        MEDIUMBLOB     NOT NULL,
  created_at      DATETIME(6)    NOT NULL,
  PRIMARY KEY (namespace_id, credential_id, idempotency_key),
  KEY receipts_created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
