-- Several live secrets of one credential overlap during a rotation.
CREATE TABLE IF NOT EXISTS credential_secrets (
  credential_id BINARY(16)  NOT NULL,
  digest        BINARY(32)  NOT NULL,
  created_at    DATETIME(6) NOT NULL,
  revoked_at    DATETIME(6) NULL,
  PRIMARY KEY (credential_id, digest)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
