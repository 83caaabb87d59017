DROP TABLE IF EXISTS applications;
