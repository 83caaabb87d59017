DROP TABLE IF EXISTS credential_queues;
