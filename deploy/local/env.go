package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// stackEnv is what `make up` writes for its users; the names are stable.
type stackEnv struct {
	ManagementURL string
	GatewayURL    string
	Token         string
	QueueID       string
	NamespaceID   string
	DSN           string

	ConsoleURL      string
	ConsolePassword string
}

func (e *stackEnv) fields() map[string]*string {
	return map[string]*string{
		"ORBIT_MANAGEMENT_URL": &e.ManagementURL,
		"ORBIT_GATEWAY_URL":    &e.GatewayURL,
		"ORBIT_TOKEN":          &e.Token,
		"ORBIT_QUEUE_ID":       &e.QueueID,
		"ORBIT_NAMESPACE_ID":   &e.NamespaceID,
		"ORBIT_DSN":            &e.DSN,

		"ORBIT_CONSOLE_URL":      &e.ConsoleURL,
		"ORBIT_CONSOLE_PASSWORD": &e.ConsolePassword,
	}
}

var envOrder = []string{"ORBIT_MANAGEMENT_URL", "ORBIT_GATEWAY_URL", "ORBIT_TOKEN", "ORBIT_QUEUE_ID", "ORBIT_NAMESPACE_ID", "ORBIT_DSN",
	"ORBIT_CONSOLE_URL", "ORBIT_CONSOLE_PASSWORD"}

// write replaces the file in one step, readable by its owner only, in a form that a shell can source.
func (e *stackEnv) write(path string) error {
	var b strings.Builder
	for _, name := range envOrder {
		fmt.Fprintf(&b, "%s='%s'\n", name, strings.ReplaceAll(*e.fields()[name], "'", `'\''`))
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// readEnv returns what an earlier stack of this home wrote; ok is false if none did.
func readEnv(path string) (e stackEnv, ok bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil
	}
	if err != nil {
		return e, false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		if field := e.fields()[name]; field != nil {
			*field = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(value, "'"), "'"), `'\''`, "'")
		}
	}
	return e, e.Token != "", lines.Err()
}
