DROP TABLE IF EXISTS flow_version_queues;
DROP TABLE IF EXISTS flow_versions;
