package inbox

import (
	"fmt"
	"strings"
)

// Dialect is the database's kind of SQL.
type Dialect int

// The dialects.
const (
	MySQL    Dialect = iota // MySQL 8+ and MariaDB 10.5+
	Postgres                // PostgreSQL 13+
)

type statements struct{ create, save string }

func (d Dialect) statements(table string) (statements, error) {
	switch d {
	case MySQL:
		name := "`" + strings.ReplaceAll(table, ".", "`.`") + "`"
		return statements{create: fmt.Sprintf(mysqlCreate, name), save: fmt.Sprintf(mysqlSave, name)}, nil
	case Postgres:
		name := `"` + strings.ReplaceAll(table, ".", `"."`) + `"`
		return statements{create: fmt.Sprintf(postgresCreate, name), save: fmt.Sprintf(postgresSave, name)}, nil
	}
	return statements{}, fmt.Errorf("inbox: unknown dialect %d", d)
}

// event holds the exact bytes: a JSON column would rewrite numbers. Times are UTC.
const mysqlCreate = `CREATE TABLE IF NOT EXISTS %s (
  consumer        VARBINARY(128)  NOT NULL,
  event_id        BINARY(16)      NOT NULL,
  sequence        BIGINT UNSIGNED NOT NULL,
  type            VARBINARY(64)   NOT NULL,
  subscription_id BINARY(16)      NOT NULL,
  task_id         BINARY(16)      NOT NULL,
  occurred_at     DATETIME(6)     NOT NULL,
  received_at     DATETIME(6)     NOT NULL,
  event           MEDIUMBLOB      NOT NULL,
  duplicates      INT UNSIGNED    NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer, event_id)
) ENGINE=InnoDB`

// A repeated event changes its row, so the count is 2 with or without clientFoundRows.
const mysqlSave = `INSERT INTO %s
  (consumer, event_id, sequence, type, subscription_id, task_id, occurred_at, received_at, event)
VALUES (?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?)
ON DUPLICATE KEY UPDATE duplicates = duplicates + 1`

const postgresCreate = `CREATE TABLE IF NOT EXISTS %s (
  consumer        VARCHAR(128)  NOT NULL,
  event_id        BYTEA         NOT NULL,
  sequence        NUMERIC(20)   NOT NULL,
  type            VARCHAR(64)   NOT NULL,
  subscription_id BYTEA         NOT NULL,
  task_id         BYTEA         NOT NULL,
  occurred_at     TIMESTAMP(6)  NOT NULL,
  received_at     TIMESTAMP(6)  NOT NULL,
  event           BYTEA         NOT NULL,
  duplicates      BIGINT        NOT NULL DEFAULT 0,
  PRIMARY KEY (consumer, event_id)
)`

const postgresSave = `INSERT INTO %s AS saved
  (consumer, event_id, sequence, type, subscription_id, task_id, occurred_at, received_at, event)
VALUES ($1, $2, CAST($3 AS TEXT)::NUMERIC, $4, $5, $6, CAST($7 AS TEXT)::TIMESTAMP, clock_timestamp() AT TIME ZONE 'UTC', $8)
ON CONFLICT (consumer, event_id) DO UPDATE SET duplicates = saved.duplicates + 1
RETURNING duplicates = 0`
