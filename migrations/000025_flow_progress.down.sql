DROP TABLE IF EXISTS flow_progress;
