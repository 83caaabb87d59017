DROP TABLE IF EXISTS credentials;
