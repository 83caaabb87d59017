DROP TABLE IF EXISTS schedule_fires;
