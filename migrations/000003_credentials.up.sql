-- A token names its credential and nothing else, so the id alone is the key.
CREATE TABLE IF NOT EXISTS credentials (
  id             BINARY(16)     NOT NULL,
  namespace_id   BINARY(16)     NOT NULL,
  application_id BINARY(16)     NOT NULL,
  name           VARBINARY(128) NOT NULL,
  actions        VARBINARY(512) NOT NULL,
  all_queues     TINYINT(1)     NOT NULL,
  created_at     DATETIME(6)    NOT NULL,
  revoked_at     DATETIME(6)    NULL,
  PRIMARY KEY (id),
  KEY credentials_application (namespace_id, application_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
