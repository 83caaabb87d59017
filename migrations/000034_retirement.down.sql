ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_settled, DROP CONSTRAINT subscriptions_retired, ADD KEY subscriptions_queue (namespace_id, queue_id),
  DROP KEY subscriptions_active, DROP COLUMN retired_sequence, DROP COLUMN retired_at;
ALTER TABLE queues DROP CONSTRAINT queues_retired, DROP COLUMN retired_at;
