-- What became of each fire time. The key makes a fire time of a schedule yield one row, and so one task; run is
-- zero for it, and the task's id for a run-now, which is no fire time of the schedule. A SKIPPED row stands for
-- skipped fire times, first_at … fire_at.
CREATE TABLE IF NOT EXISTS schedule_fires (
  namespace_id BINARY(16)     NOT NULL,
  schedule_id  BINARY(16)     NOT NULL,
  fire_at      DATETIME(6)    NOT NULL,
  run          BINARY(16)     NOT NULL,
  version      INT UNSIGNED   NOT NULL,
  task_id      BINARY(16)     NULL, -- of a FIRED one
  reason       VARBINARY(32)  NULL, -- of a SKIPPED one
  skipped      INT UNSIGNED   NOT NULL,
  first_at     DATETIME(6)    NULL,
  created_at   DATETIME(6)    NOT NULL,
  PRIMARY KEY (namespace_id, schedule_id, fire_at, run),
  KEY schedule_fires_created (created_at),
  CONSTRAINT schedule_fires_outcome CHECK ((task_id IS NULL) <> (reason IS NULL)),
  CONSTRAINT schedule_fires_skipped CHECK ((skipped = 0) = (reason IS NULL) AND (skipped = 0) = (first_at IS NULL))
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
