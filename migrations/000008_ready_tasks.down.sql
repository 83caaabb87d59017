DROP TABLE IF EXISTS ready_tasks;
