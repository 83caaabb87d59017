-- Immutable. steps is the JSON array as it is answered; digest, its SHA-256, is what readers cache it by.
CREATE TABLE IF NOT EXISTS flow_versions (
  namespace_id  BINARY(16)   NOT NULL,
  flow_id       BINARY(16)   NOT NULL,
  version       INT UNSIGNED NOT NULL,
  credential_id BINARY(16)   NOT NULL,
  digest        BINARY(32)   NOT NULL,
  created_at    DATETIME(6)  NOT NULL,
  steps         MEDIUMBLOB   NOT NULL,
  PRIMARY KEY (namespace_id, flow_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;

-- Which queues a version uses: for a queue's retirement, and for the scope of a credential.
CREATE TABLE IF NOT EXISTS flow_version_queues (
  namespace_id BINARY(16)   NOT NULL,
  queue_id     BINARY(16)   NOT NULL,
  flow_id      BINARY(16)   NOT NULL,
  version      INT UNSIGNED NOT NULL,
  PRIMARY KEY (namespace_id, queue_id, flow_id, version),
  KEY flow_version_queues_version (namespace_id, flow_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
