CREATE TABLE IF NOT EXISTS credential_queues (
  credential_id BINARY(16) NOT NULL,
  queue_id      BINARY(16) NOT NULL,
  PRIMARY KEY (credential_id, queue_id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
