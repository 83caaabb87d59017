-- Only applications with a limit have a row; 0 is none.
CREATE TABLE IF NOT EXISTS application_quotas (
  namespace_id   BINARY(16)   NOT NULL,
  application_id BINARY(16)   NOT NULL,
  queued_limit   INT UNSIGNED NOT NULL,
  running_limit  INT UNSIGNED NOT NULL,
  PRIMARY KEY (namespace_id, application_id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
