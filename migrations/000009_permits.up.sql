-- A permit is a running attempt: made by the claim, removed by the outcome. The table holds no more rows than
-- workers have tasks, so the sweep and the counts read it whole: an index more would cost every task twice.
CREATE TABLE IF NOT EXISTS permits (
  namespace_id BINARY(16)      NOT NULL,
  queue_id     BINARY(16)      NOT NULL,
  attempt_id   BINARY(16)      NOT NULL,
  task_id      BINARY(16)      NOT NULL,
  application_id BINARY(16)    NOT NULL,
  number       INT UNSIGNED    NOT NULL,
  epoch        BIGINT UNSIGNED NOT NULL,
  digest       BINARY(32)      NOT NULL,
  session_id   BINARY(16)      NOT NULL,
  worker       VARBINARY(128)  NOT NULL,
  started_at   DATETIME(6)     NOT NULL,
  lease_until  DATETIME(6)     NOT NULL,
  PRIMARY KEY (namespace_id, queue_id, attempt_id)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
