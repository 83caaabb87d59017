DROP TABLE IF EXISTS schedule_versions;
