-- What each service's database user may do, and nothing more. {db} is the database, {management} and
-- {gateway} the users. Migrations, bootstrap and administration run as the schema's owner.
GRANT SELECT ON {db}.* TO {management};
GRANT INSERT ON {db}.audit TO {management};
GRANT INSERT, UPDATE, DELETE ON {db}.receipts TO {management};
GRANT INSERT ON {db}.credential_queues TO {management};
GRANT INSERT, UPDATE ON {db}.queues TO {management};
GRANT INSERT, UPDATE ON {db}.tasks TO {management};
GRANT INSERT, DELETE ON {db}.ready_tasks TO {management};
GRANT INSERT ON {db}.task_labels TO {management};
GRANT UPDATE ON {db}.application_quotas TO {management};
GRANT UPDATE, DELETE ON {db}.permits TO {management};
GRANT INSERT ON {db}.attempts TO {management};
GRANT INSERT, DELETE ON {db}.result_events TO {management};
GRANT UPDATE ON {db}.result_streams TO {management};
GRANT INSERT, UPDATE ON {db}.subscriptions TO {management};
GRANT UPDATE ON {db}.deliveries TO {management};
GRANT INSERT, UPDATE ON {db}.flows TO {management};
GRANT INSERT ON {db}.flow_versions TO {management};
GRANT INSERT ON {db}.flow_version_queues TO {management};
GRANT INSERT, UPDATE ON {db}.flow_runs TO {management};
GRANT INSERT, UPDATE ON {db}.flow_steps TO {management};
GRANT INSERT ON {db}.flow_tasks TO {management};
GRANT INSERT, UPDATE ON {db}.flow_progress TO {management};
GRANT SELECT ON {db}.* TO {gateway};
GRANT INSERT ON {db}.audit TO {gateway};
GRANT UPDATE ON {db}.tasks TO {gateway};
-- MySQL wants a right to change before it locks a row for update; the gateway changes no queue.
GRANT UPDATE (updated_at) ON {db}.queues TO {gateway};
GRANT INSERT, DELETE ON {db}.ready_tasks TO {gateway};
GRANT UPDATE ON {db}.application_quotas TO {gateway};
GRANT INSERT, UPDATE, DELETE ON {db}.permits TO {gateway};
GRANT INSERT, UPDATE ON {db}.attempts TO {gateway};
GRANT INSERT ON {db}.result_events TO {gateway};
GRANT UPDATE ON {db}.result_streams TO {gateway};
GRANT UPDATE ON {db}.subscriptions TO {gateway};
GRANT INSERT, UPDATE ON {db}.deliveries TO {gateway};
