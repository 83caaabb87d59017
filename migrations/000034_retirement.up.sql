-- Retirement (R7.1, R7.2): everything that exists starts not retired. One guarded ALTER a table, since MySQL knows
-- no ADD COLUMN IF NOT EXISTS. subscriptions_active counts the live ones of a namespace and of a queue, however
-- many were retired; nothing else read subscriptions_queue.
SET @orbit_ddl = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'queues' AND column_name = 'retired_at') > 0, 'DO 0',
  'ALTER TABLE queues ADD COLUMN retired_at DATETIME(6) NULL,
   ADD CONSTRAINT queues_retired CHECK (retired_at IS NULL OR paused = 1)');
PREPARE orbit_ddl FROM @orbit_ddl;
EXECUTE orbit_ddl;
DEALLOCATE PREPARE orbit_ddl;

SET @orbit_ddl = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'subscriptions' AND column_name = 'retired_at') > 0, 'DO 0',
  'ALTER TABLE subscriptions ADD COLUMN retired_at DATETIME(6) NULL, ADD COLUMN retired_sequence BIGINT UNSIGNED NULL,
   ADD CONSTRAINT subscriptions_retired CHECK ((retired_at IS NULL) = (retired_sequence IS NULL)),
   ADD CONSTRAINT subscriptions_settled CHECK (retired_at IS NULL OR enabled = 0 AND pending_count = 0 AND cursor_sequence = retired_sequence),
   ADD KEY subscriptions_active (namespace_id, retired_at, queue_id), DROP KEY subscriptions_queue');
PREPARE orbit_ddl FROM @orbit_ddl;
EXECUTE orbit_ddl;
DEALLOCATE PREPARE orbit_ddl;
