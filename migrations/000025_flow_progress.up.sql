-- How far runs have followed the log. live = 0 means that the namespace has no live run and is not
-- looked at; the run that makes it 1 again moves the cursor to the head, past what can concern no run.
CREATE TABLE IF NOT EXISTS flow_progress (
  namespace_id    BINARY(16)      NOT NULL,
  cursor_sequence BIGINT UNSIGNED NOT NULL,
  live            TINYINT(1)      NOT NULL,
  PRIMARY KEY (namespace_id),
  KEY flow_progress_live (live, namespace_id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
