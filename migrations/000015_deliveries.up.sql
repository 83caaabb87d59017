-- deliveries_state serves claiming (PENDING in sequence order), recovery (LEASED) and listing by state:
-- within a subscription the order of sequences is the order of creation. An id ends in its sequence and so needs no index. What changes has a fixed width, so that rows are
-- updated in place.
CREATE TABLE IF NOT EXISTS deliveries (
  namespace_id    BINARY(16)      NOT NULL,
  subscription_id BINARY(16)      NOT NULL,
  sequence        BIGINT UNSIGNED NOT NULL,
  id              BINARY(16)      NOT NULL,
  event_id        BINARY(16)      NOT NULL,
  revision        BIGINT UNSIGNED NOT NULL,
  state           ENUM('PENDING','LEASED','ACKED','EXPIRED') NOT NULL,
  lease_epoch     BIGINT UNSIGNED NOT NULL,
  attempts        INT UNSIGNED    NOT NULL,
  attempt_budget  INT UNSIGNED    NOT NULL,
  created_at      DATETIME(6)     NOT NULL,
  available_at    DATETIME(6)     NOT NULL,
  lease_until     DATETIME(6)     NOT NULL DEFAULT '1970-01-01', -- counts while LEASED
  acknowledged_at DATETIME(6)     NOT NULL DEFAULT '1970-01-01', -- counts when ACKED
  session_id      BINARY(16)      NOT NULL DEFAULT x'00000000000000000000000000000000', -- the connection that holds the lease, while LEASED
  lease_digest    BINARY(32)      NOT NULL DEFAULT x'0000000000000000000000000000000000000000000000000000000000000000', -- of the newest epoch; kept after the lease for late and repeated acks
  PRIMARY KEY (namespace_id, subscription_id, sequence),
  KEY deliveries_state (namespace_id, subscription_id, state, sequence),
  CONSTRAINT deliveries_leased CHECK (state <> 'LEASED' OR lease_until > '1970-01-01'),
  CONSTRAINT deliveries_acked CHECK ((state = 'ACKED') = (acknowledged_at > '1970-01-01')),
  CONSTRAINT deliveries_budget CHECK (attempts <= attempt_budget)
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
