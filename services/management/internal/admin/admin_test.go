package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// command runs one command line against a database.
func command(dsn string, args ...string) (out string, err error) {
	root := &cobra.Command{Use: "orbit-management", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(Commands(func() (string, error) { return dsn, nil })...)
	var buf bytes.Buffer
	root.SetOut(&buf)
	root.SetErr(&buf)
	root.SetArgs(args)
	err = root.ExecuteContext(context.Background())
	return buf.String(), err
}

func ok(t *testing.T, dsn string, args ...string) string {
	t.Helper()
	out, err := command(dsn, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

// TestBootstrap prints ids and a token that works, once, with the event actions only when asked.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	for _, c := range []struct {
		namespace string
		flags     []string
		events    bool
		all       bool
	}{
		{"plain", nil, false, false},
		{"events", []string{"--event-access"}, true, false},
		{"all", []string{"--event-access", "--all-queues", "--lease-duration", "5s"}, true, true},
	} {
		var made bootstrapJSON
		out := ok(t, db.OwnerDSN, append([]string{"bootstrap", "--namespace", c.namespace, "-o", "json"}, c.flags...)...)
		if err := json.Unmarshal([]byte(out), &made); err != nil || strings.Count(out, "\n") != 1 {
			t.Fatalf("%q: %v", out, err)
		}
		caller, err := db.Owner.Authenticate(t.Context(), made.Token)
		if err != nil {
			t.Fatal(err)
		}
		if caller.NamespaceID != made.NamespaceID || caller.ApplicationID != made.ApplicationID || caller.CredentialID != made.CredentialID || !caller.MayUse(made.QueueID) {
			t.Errorf("%s: %+v is not %+v", c.namespace, caller, made)
		}
		for _, a := range access.Actions {
			if slices.Contains(caller.Actions, a) != (c.events || !a.IsEvent()) {
				t.Errorf("%s: %s", c.namespace, a)
			}
		}
		if caller.AllQueues != c.all {
			t.Errorf("%s: all queues %v", c.namespace, caller.AllQueues)
		}
	}
	text := ok(t, db.OwnerDSN, "bootstrap", "--namespace", "human")
	if !strings.Contains(text, "token        orbit_") || !strings.Contains(text, "cannot be shown again") {
		t.Errorf("for people: %s", text)
	}
	for _, args := range [][]string{
		{"bootstrap", "--namespace", "plain"}, {"bootstrap", "--namespace", "x "}, {"bootstrap", "--namespace", "n1", "--queue", "é"},
		{"bootstrap", "--namespace", "n2", "--lease-duration", "4999ms"}, {"bootstrap", "--namespace", "n3", "--lease-duration", "5s1ns"},
		{"bootstrap", "--namespace", "n4", "-o", "xml"}, {"bootstrap", "surplus"},
	} {
		if out, err := command(db.OwnerDSN, args...); err == nil {
			t.Errorf("%v is accepted: %s", args, out)
		}
	}
	if list := ok(t, db.OwnerDSN, "namespace", "list"); strings.Count(list, "\n") != 1+4 {
		t.Errorf("refused commands left something: %s", list)
	}
}

// TestARotationFromTheCommandLine walks through what an operator does, with what is printed.
func TestARotationFromTheCommandLine(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ok(t, db.OwnerDSN, "namespace", "create", "team")
	ok(t, db.OwnerDSN, "application", "create", "shop", "--namespace", "team")
	var made struct {
		CredentialID string `json:"credential_id"`
		Token        string `json:"token"`
	}
	read := func(out string) {
		t.Helper()
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
	}
	read(ok(t, db.OwnerDSN, "credential", "create", "c", "--namespace", "team", "--application", "shop", "--actions", "events:read,events:consume", "--all-queues", "-o", "json"))
	old, id := made.Token, made.CredentialID
	read(ok(t, db.OwnerDSN, "secret", "add", id, "-o", "json"))
	var listed []struct {
		ID      string `json:"id"`
		Actions string `json:"actions"`
		Secrets []struct {
			Fingerprint string `json:"fingerprint"`
		} `json:"secrets"`
	}
	list := ok(t, db.OwnerDSN, "credential", "list", "--namespace", "team", "-o", "json")
	if err := json.Unmarshal([]byte(list), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed) != 1 || listed[0].ID != id || listed[0].Actions != "events:consume,events:read" || len(listed[0].Secrets) != 2 {
		t.Fatalf("listed %s", list)
	}
	if strings.Contains(list, old[len(old)-43:]) {
		t.Error("the list shows a secret")
	}
	ok(t, db.OwnerDSN, "secret", "revoke", id, listed[0].Secrets[0].Fingerprint)
	if _, err := db.Owner.Authenticate(t.Context(), old); err == nil {
		t.Error("the old token lives")
	}
	if _, err := db.Owner.Authenticate(t.Context(), made.Token); err != nil {
		t.Error(err)
	}
	ok(t, db.OwnerDSN, "credential", "grant", id, "--actions", "queues:read")
	ok(t, db.OwnerDSN, "credential", "revoke", id, "--actions", "events:consume")
	if table := ok(t, db.OwnerDSN, "credential", "list", "--namespace", "team"); !strings.Contains(table, "events:read,queues:read") {
		t.Errorf("listed %s", table)
	}
	for _, args := range [][]string{
		{"credential", "revoke", id}, {"credential", "revoke", id, "--whole", "--all-queues"}, {"credential", "grant", id}, {"credential", "grant", "x", "--all-queues"},
		{"credential", "grant", id, "--actions", "nonsense"}, {"credential", "create", "d", "--namespace", "team", "--application", "shop"},
		{"credential", "list"}, {"secret", "revoke", id, listed[0].Secrets[1].Fingerprint}, {"secret", "add"},
	} {
		if out, err := command(db.OwnerDSN, args...); err == nil {
			t.Errorf("%v is accepted: %s", args, out)
		}
	}
	ok(t, db.OwnerDSN, "credential", "revoke", id, "--whole")
	if _, err := db.Owner.Authenticate(t.Context(), made.Token); err == nil {
		t.Error("the revoked credential lives")
	}
}

func TestMigrateCommands(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if out := ok(t, db.OwnerDSN, "migrate", "up"); !strings.HasPrefix(out, "schema version ") {
		t.Errorf("up: %s", out)
	}
	if out := ok(t, db.OwnerDSN, "migrate", "version"); !strings.HasPrefix(out, "database ") || strings.Contains(out, "half") {
		t.Errorf("version: %s", out)
	}
	if _, err := db.SQL.Exec("UPDATE schema_migrations SET version = version - 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := command(db.OwnerDSN, "namespace", "list"); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("a command on an old schema: %v", err)
	}
}

func TestAMissingDSNIsReportedBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	missing := errors.New("ORBIT_DSN is required")
	root := &cobra.Command{SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(Commands(func() (string, error) { return "", missing })...)
	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "version"}, {"bootstrap"}, {"namespace", "list"}} {
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); !errors.Is(err, missing) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
