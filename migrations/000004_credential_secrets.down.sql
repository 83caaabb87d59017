DROP TABLE IF EXISTS credential_secrets;
