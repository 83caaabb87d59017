DROP TABLE IF EXISTS task_labels;
