// Package migrations holds the schema (golang-migrate files) and the grants of the services' users.
package migrations

import (
	"embed"
	"io/fs"
	"strconv"
	"strings"
)

// Files has NNNNNN_what.up.sql and .down.sql. Numbers may have gaps; what comes after a release is numbered above it,
// since a database only ever goes on from the number it is at.
//
//go:embed *.sql
var Files embed.FS

//go:embed grants.sql
var grants string

// Latest is the newest version in Files; a service refuses any other (R7.4).
func Latest() uint {
	names, _ := fs.Glob(Files, "*.up.sql") // the pattern is well formed
	var latest uint64
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil && n > latest {
			latest = n
		}
	}
	return uint(latest)
}

// Grants returns the GRANT statements for a database and the two services' users, each written as
// 'name'@'host'.
func Grants(database, management, gateway string) []string {
	text := strings.NewReplacer("{db}", "`"+database+"`", "{management}", management, "{gateway}", gateway).Replace(grants)
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), ";"); line != "" && !strings.HasPrefix(line, "--") {
			out = append(out, line)
		}
	}
	return out
}
