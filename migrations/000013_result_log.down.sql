DROP TABLE IF EXISTS result_events;
DROP TABLE IF EXISTS result_streams;
