package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// wakeVersion is what every gateway watches.
func wakeVersion(t *testing.T, db *storetest.DB, namespace ids.ID) (n int) {
	t.Helper()
	if err := db.SQL.QueryRow("SELECT wake_version FROM result_streams WHERE namespace_id = ?", namespace[:]).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func audited(t *testing.T, db *storetest.DB, namespace ids.ID) (actions []string, details string) {
	t.Helper()
	rows, err := db.SQL.Query("SELECT action, COALESCE(detail, '') FROM audit WHERE namespace_id = ? AND credential_id IS NULL ORDER BY id", namespace[:])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var action, detail string
		if err := rows.Scan(&action, &detail); err != nil {
			t.Fatal(err)
		}
		actions, details = append(actions, action), details+detail+"\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return actions, details
}

// TestAdministrationOfCredentials: rights in force at the next look, every change audited without a
// secret, gateways woken by each that may end a session.
func TestAdministrationOfCredentials(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx, s := context.Background(), db.Owner
	ns, err := s.CreateNamespace(ctx, "team")
	must(t, err)
	_, err = s.CreateApplication(ctx, "team", "shop")
	must(t, err)
	id, token, err := s.CreateCredential(ctx, "team", "shop", "c", store.Rights{Actions: []access.Action{access.QueuesManage, access.QueuesRead}})
	must(t, err)
	caller, err := s.Authenticate(ctx, token)
	must(t, err)
	create := queue.Create{Name: "q"}
	must(t, create.Normalise())
	_, err = s.CreateQueue(ctx, store.Write{Caller: caller, Key: "k", RequestID: ids.New()}, create)
	must(t, err)
	create.Name = "p"
	other, err := s.CreateQueue(ctx, store.Write{Caller: caller, Key: "l", RequestID: ids.New()}, create)
	must(t, err)
	otherID, err := ids.ParseID(string(other.Snapshot[len(`{"id":"`):][:32]))
	must(t, err)

	rights := func(wantActions string, all bool, queues int) {
		t.Helper()
		caller, err := s.Authenticate(ctx, token)
		must(t, err)
		if got := access.JoinActions(caller.Actions); got != wantActions || caller.AllQueues != all || len(caller.Queues) != queues {
			t.Errorf("has %s, all %v, %d queues", got, caller.AllQueues, len(caller.Queues))
		}
	}
	rights("queues:manage,queues:read", false, 2)
	before := wakeVersion(t, db, ns)
	must(t, s.GrantCredential(ctx, id, store.Rights{Actions: []access.Action{access.EventsRead, access.QueuesRead}, Queues: []string{"p"}}))
	rights("events:read,queues:manage,queues:read", false, 2)
	must(t, s.WithdrawRights(ctx, id, store.Rights{Actions: []access.Action{access.QueuesManage}, Queues: []string{"q"}}))
	rights("events:read,queues:read", false, 1)
	if caller, _ := s.Authenticate(ctx, token); !caller.MayUse(otherID) {
		t.Error("the wrong queue was taken")
	}
	must(t, s.GrantCredential(ctx, id, store.Rights{AllQueues: true}))
	rights("events:read,queues:read", true, 0)
	must(t, s.WithdrawRights(ctx, id, store.Rights{AllQueues: true}))
	rights("events:read,queues:read", false, 1)
	if n := wakeVersion(t, db, ns) - before; n != 4 {
		t.Errorf("4 changes woke the gateways %d times", n)
	}
	if err := s.WithdrawRights(ctx, id, store.Rights{Actions: []access.Action{access.EventsRead, access.QueuesRead}}); !errs.Is(err, errs.StateConflict) {
		t.Errorf("taking the last action: %v", err)
	}
	if err := s.GrantCredential(ctx, id, store.Rights{Queues: []string{"nope"}}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown queue: %v", err)
	}
	if err := s.GrantCredential(ctx, ids.New(), store.Rights{AllQueues: true}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown credential: %v", err)
	}
	must(t, s.RevokeCredential(ctx, id))
	if _, err := s.Authenticate(ctx, token); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("a revoked credential: %v", err)
	}
	for name, err := range map[string]error{"grant": s.GrantCredential(ctx, id, store.Rights{AllQueues: true}), "revoke": s.RevokeCredential(ctx, id)} {
		if !errs.Is(err, errs.StateConflict) {
			t.Errorf("%s after revocation: %v", name, err)
		}
	}
	actions, details := audited(t, db, ns)
	want := []string{"namespace.create", "application.create", "credential.create", "credential.grant", "credential.withdraw", "credential.grant", "credential.withdraw", "credential.revoke"}
	if !slices.Equal(actions, want) {
		t.Errorf("audited %v, want %v", actions, want)
	}
	if _, secret, _ := access.ParseToken(token); strings.Contains(details, secret.Text()) {
		t.Error("the audit shows a secret")
	}
}

// TestRotationOverlaps: two secrets live side by side, one goes, the last one cannot.
func TestRotationOverlaps(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx, s := context.Background(), db.Owner
	tenant := db.Tenant(t)
	fresh, err := s.AddSecret(ctx, tenant.CredentialID)
	must(t, err)
	var name string
	must(t, db.SQL.QueryRow("SELECT name FROM namespaces WHERE id = ?", tenant.NamespaceID[:]).Scan(&name))
	list, err := s.ListCredentials(ctx, name)
	must(t, err)
	secrets := list[0].Secrets
	if len(list) != 1 || len(secrets) != 2 || secrets[0].Fingerprint == secrets[1].Fingerprint {
		t.Fatalf("listed %+v", list)
	}
	live := func(token string) bool {
		caller, err := s.Authenticate(ctx, token)
		return err == nil && caller.CredentialID == tenant.CredentialID
	}
	if !live(tenant.Token) || !live(fresh) {
		t.Error("the secrets do not overlap")
	}
	for which, kind := range map[string]errs.Kind{"": errs.InvalidArgument, "abc": errs.InvalidArgument, "000000000000": errs.NotFound} {
		if err := s.RevokeSecret(ctx, tenant.CredentialID, which); !errs.Is(err, kind) {
			t.Errorf("revoking %q: %v", which, err)
		}
	}
	before := wakeVersion(t, db, tenant.NamespaceID)
	must(t, s.RevokeSecret(ctx, tenant.CredentialID, secrets[0].Fingerprint))
	if live(tenant.Token) || !live(fresh) || wakeVersion(t, db, tenant.NamespaceID) != before+1 {
		t.Error("the old secret lives, the new one does not, or the gateways sleep")
	}
	if err := s.RevokeSecret(ctx, tenant.CredentialID, secrets[1].Fingerprint); !errs.Is(err, errs.StateConflict) || !live(fresh) {
		t.Errorf("revoking the last secret: %v", err)
	}
	if err := s.RevokeSecret(ctx, tenant.CredentialID, secrets[0].Fingerprint); !errs.Is(err, errs.NotFound) {
		t.Errorf("revoking a secret twice: %v", err)
	}
}

// TestNamesOfTenants: byte for byte, no folding, no trailing space, unique where they must be.
func TestNamesOfTenants(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx, s := context.Background(), db.Owner
	for _, good := range []string{"a", "A", "a.b", strings.Repeat("n", 128)} {
		_, err := s.CreateNamespace(ctx, good)
		must(t, err)
	}
	for _, bad := range []string{"", "a ", " a", "é", "-a", strings.Repeat("n", 129)} {
		if _, err := s.CreateNamespace(ctx, bad); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("namespace %q: %v", bad, err)
		}
		if _, err := s.CreateApplication(ctx, "a", bad); !errs.Is(err, errs.InvalidArgument) {
			t.Errorf("application %q: %v", bad, err)
		}
	}
	if _, err := s.CreateNamespace(ctx, "a"); !errs.Is(err, errs.StateConflict) {
		t.Errorf("a taken namespace: %v", err)
	}
	for _, ns := range []string{"a", "A"} {
		_, err := s.CreateApplication(ctx, ns, "app")
		must(t, err)
	}
	if _, err := s.CreateApplication(ctx, "a", "app"); !errs.Is(err, errs.StateConflict) {
		t.Errorf("a taken application: %v", err)
	}
	if _, err := s.CreateApplication(ctx, "b", "app"); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown namespace: %v", err)
	}
	if _, _, err := s.CreateCredential(ctx, "a", "app", "c", store.Rights{}); !errs.Is(err, errs.InvalidArgument) {
		t.Errorf("a credential without actions: %v", err)
	}
	if list, err := s.ListNamespaces(ctx); err != nil || len(list) != 4 {
		t.Errorf("%d namespaces, %v", len(list), err)
	}
	if list, err := s.ListApplications(ctx, "A"); err != nil || len(list) != 1 || list[0].Name != "app" {
		t.Errorf("%v, %v", list, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
