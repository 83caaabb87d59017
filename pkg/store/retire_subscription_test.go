package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func retireSubscription(s *store.Store, w store.Write, id ids.ID, revision uint64) (*subscription.Subscription, error) {
	expected := ids.Counter(revision)
	receipt, err := s.RetireSubscription(context.Background(), w, id, subscription.Retire{ExpectedRevision: &expected, Reason: "done"})
	if err != nil {
		return nil, err
	}
	var out subscription.Subscription
	return &out, json.Unmarshal(receipt.Snapshot, &out)
}

// wantUnchanged calls a command that must be refused with this kind and text, and compares every row
// of every table before and after.
func wantUnchanged(t *testing.T, db *storetest.DB, name string, kind errs.Kind, texts []string, call func() error) {
	t.Helper()
	before := dump(t, db)
	err := call()
	if !errs.Is(err, kind) {
		t.Errorf("%s: got %v, want %s", name, err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(errs.MessageOf(err), text) {
			t.Errorf("%s: %q does not name %q", name, errs.MessageOf(err), text)
		}
	}
	for table, rows := range dump(t, db) {
		if rows != before[table] {
			t.Errorf("%s: table %s changed from\n%s\nto\n%s", name, table, before[table], rows)
		}
	}
}

// dump is every row of every table.
func dump(t *testing.T, db *storetest.DB) map[string]string {
	t.Helper()
	tables, err := db.SQL.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	must(t, err)
	defer tables.Close()
	var names []string
	for tables.Next() {
		var name string
		must(t, tables.Scan(&name))
		names = append(names, name)
	}
	must(t, tables.Err())
	out := make(map[string]string, len(names))
	for _, name := range names {
		rows, err := db.SQL.Query("SELECT * FROM " + name)
		must(t, err)
		out[name] = fmt.Sprint(table(t, rows))
	}
	return out
}

// TestRetireSubscriptionNamesAllThatIsOwed: every condition of R7.1 alone and in every combination;
// nothing changes unless none holds.
func TestRetireSubscriptionNamesAllThatIsOwed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	const pending, leased, expired, undelivered = 1, 2, 4, 8
	for set := range 16 {
		sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000})
		var want []string
		if set&leased != 0 {
			db.AppendEvents(t, tenant, 2, `1`)
			claim(t, db, tenant, sub, 2)
			want = append(want, "2 LEASED deliveries")
		}
		if set&expired != 0 {
			db.AppendEvents(t, tenant, 1, `1`)
			claim(t, db, tenant, sub, 3)
			execSQL(t, db, "UPDATE deliveries SET state = 'EXPIRED' WHERE subscription_id = ? ORDER BY sequence DESC LIMIT 1", sub[:])
			want = append(want, "1 EXPIRED delivery")
		}
		if set&pending != 0 {
			db.AppendEvents(t, tenant, 3, `1`)
			claim(t, db, tenant, sub, 0)
			want = append(want, "3 PENDING deliveries")
		}
		if set&undelivered != 0 {
			db.AppendEvents(t, tenant, 4, `1`)
			want = append(want, "4 events of its queue and types up to sequence")
		}
		if set == 0 {
			continue
		}
		name := fmt.Sprintf("set %04b", set)
		wantUnchanged(t, db, name, errs.ResourceBusy, append(want, "subscription "+sub.String()), func() error {
			_, err := retireSubscription(db.Management, tenant.Write(), sub, 1)
			return err
		})
		for _, other := range []string{"PENDING", "LEASED", "EXPIRED", "events of"} { // and names nothing else
			_, err := retireSubscription(db.Management, tenant.Write(), sub, 1)
			named := strings.Contains(errs.MessageOf(err), " "+other+" ")
			asked := strings.Contains(strings.Join(want, " "), other)
			if named && !asked && other != "EXPIRED" { // the advice speaks of EXPIRED ones
				t.Errorf("%s: %q names %s", name, errs.MessageOf(err), other)
			}
		}
	}
}

// wantAudited checks the one audit row of a command.
func wantAudited(t *testing.T, db *storetest.DB, tenant storetest.Tenant, action string, id ids.ID, detail string) {
	t.Helper()
	entries, _, err := db.Management.ListAudit(context.Background(), tenant.Caller, store.Page{Limit: 100})
	must(t, err)
	n := 0
	for _, e := range entries {
		if e.Action == action && e.ResourceID == id {
			n++
			if string(e.Detail) != detail || e.CredentialID == nil || *e.CredentialID != tenant.CredentialID {
				t.Errorf("%s is audited as %+v with %s", action, e, e.Detail)
			}
		}
	}
	if n != 1 {
		t.Errorf("%s is audited %d times", action, n)
	}
}

// claim is one claim turn that leases up to n more.
func claim(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID, n int) store.Turn {
	t.Helper()
	var wants []store.SessionWant
	if n > 0 {
		wants = append(wants, store.SessionWant{SessionID: ids.New(), Capacity: n})
	}
	turn, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, wants)
	must(t, err)
	return turn
}

func execSQL(t *testing.T, db *storetest.DB, query string, args ...any) {
	t.Helper()
	_, err := db.SQL.Exec(query, args...)
	must(t, err)
}

// TestRetireSubscription: what is not its own does not stand in the way; the cursor goes to the head,
// later events are not its own, and all that comes after is refused.
func TestRetireSubscription(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{Name: "s", Types: []string{"task.failed"}})
	db.AppendEvents(t, tenant, 7, `1`) // succeeded: another type
	before := wakeVersion(t, db, tenant.NamespaceID)
	w := tenant.Write()
	got, err := retireSubscription(db.Management, w, sub, 1)
	must(t, err)
	if got.Enabled || got.Revision != 2 || got.RetiredAt == nil || got.RetiredSequence == nil || *got.RetiredSequence != 7 || got.CursorSequence != 7 ||
		!got.RetiredAt.Equal(got.UpdatedAt) || got.PendingCount != 0 {
		t.Errorf("retired as %+v", got)
	}
	if wakeVersion(t, db, tenant.NamespaceID) != before+1 {
		t.Error("no gateway was woken")
	}
	again, err := retireSubscription(db.Management, w, sub, 1)
	if err != nil || again.RetiredAt == nil || !again.RetiredAt.Equal(*got.RetiredAt) {
		t.Errorf("the same key: %+v, %v", again, err)
	}
	db.AppendEvents(t, tenant, 1, `1`)
	wantUnchanged(t, db, "claim", errs.ResourceRetired, []string{sub.String(), "at sequence 7"}, func() error {
		_, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, []store.SessionWant{{SessionID: ids.New(), Capacity: 1}})
		return err
	})
	on := true
	revision := ids.Counter(2)
	for name, call := range map[string]func() error{
		"retire": func() error { _, err := retireSubscription(db.Management, tenant.Write(), sub, 2); return err },
		"retire, stale revision": func() error {
			_, err := retireSubscription(db.Management, tenant.Write(), sub, 1)
			return err
		},
		"resume": func() error {
			_, err := db.Management.ConfigureSubscription(context.Background(), tenant.Write(), sub, subscription.Configure{ExpectedRevision: &revision, Enabled: &on, Reason: "r"})
			return err
		},
	} {
		wantUnchanged(t, db, name, errs.ResourceRetired, []string{sub.String()}, call)
	}
	create := subscription.Create{Name: "s", QueueID: &tenant.QueueID}
	n, err := create.Normalise()
	must(t, err)
	wantUnchanged(t, db, "its name again", errs.StateConflict, []string{"name"}, func() error {
		_, err := db.Management.CreateSubscription(context.Background(), tenant.Write(), n)
		return err
	})
	read, err := db.Management.GetSubscription(context.Background(), tenant.Caller, sub)
	if err != nil || read.RetiredSequence == nil || *read.RetiredSequence != 7 {
		t.Errorf("read as %+v, %v", read, err)
	}
	list, _, err := db.Management.ListSubscriptions(context.Background(), tenant.Caller, tenant.QueueID, store.Page{Limit: 10})
	if err != nil || len(list) != 1 || list[0].RetiredAt == nil {
		t.Errorf("listed as %+v, %v", list, err)
	}
	wantAudited(t, db, tenant, "subscription.retire", sub, `{"reason":"done","retired_sequence":"7"}`)
}

// TestRetireSubscriptionCountsTheRowsThemselves: neither the counter nor the rows alone are believed.
func TestRetireSubscriptionCountsTheRowsThemselves(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	counted := db.Subscribe(t, tenant, subscription.Create{})
	execSQL(t, db, "UPDATE subscriptions SET pending_count = 3 WHERE id = ?", counted[:])
	rows := db.Subscribe(t, tenant, subscription.Create{})
	db.AppendEvents(t, tenant, 1, `1`)
	claim(t, db, tenant, rows, 1)
	execSQL(t, db, "UPDATE subscriptions SET pending_count = 0, cursor_sequence = 1")
	execSQL(t, db, "UPDATE subscriptions SET pending_count = 3 WHERE id = ?", counted[:])
	for text, sub := range map[string]ids.ID{"3 deliveries by its pending_count": counted, "1 LEASED delivery": rows} {
		wantUnchanged(t, db, text, errs.ResourceBusy, []string{text}, func() error {
			_, err := retireSubscription(db.Management, tenant.Write(), sub, 1)
			return err
		})
	}
}

// TestRetireSubscriptionNeedsAWholeLog: where events are missing, nobody can say that all were had.
func TestRetireSubscriptionNeedsAWholeLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID)
		text    string
	}{
		"retention gap": {func(t *testing.T, db *storetest.DB, _ storetest.Tenant, _ ids.ID) {
			execSQL(t, db, "DELETE FROM result_events WHERE sequence <= 4")
			execSQL(t, db, "UPDATE result_streams SET boundary = 4")
		}, "events up to 4 were removed"},
		"removed source": {func(t *testing.T, db *storetest.DB, _ storetest.Tenant, _ ids.ID) {
			execSQL(t, db, "DELETE FROM result_events WHERE sequence = 5")
		}, "1 of the 7 events in (3, 10] are missing"},
		"removed source of a delivery": {func(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID) {
			execSQL(t, db, "UPDATE subscriptions SET cursor_sequence = 3, types = 15")
			claim(t, db, tenant, sub, 1)
			execSQL(t, db, "DELETE FROM result_events WHERE sequence IN (6, 8)")
		}, "the events of 2 of its un-acknowledged deliveries"},
		"restored log": {func(t *testing.T, db *storetest.DB, _ storetest.Tenant, _ ids.ID) {
			execSQL(t, db, "UPDATE subscriptions SET cursor_sequence = 11")
		}, "the log ends at 10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			tenant := db.Tenant(t)
			db.AppendEvents(t, tenant, 3, `1`)
			sub := db.Subscribe(t, tenant, subscription.Create{Types: []string{"task.failed"}})
			db.AppendEvents(t, tenant, 7, `1`)
			c.prepare(t, db, tenant, sub)
			wantUnchanged(t, db, name, errs.EventHistoryExpired, []string{sub.String(), c.text}, func() error {
				_, err := retireSubscription(db.Management, tenant.Write(), sub, 1)
				return err
			})
		})
	}
	// Retention before the cursor is no gap.
	db := storetest.New(t)
	tenant := db.Tenant(t)
	db.AppendEvents(t, tenant, 3, `1`)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	execSQL(t, db, "DELETE FROM result_events")
	execSQL(t, db, "UPDATE result_streams SET boundary = 3")
	if _, err := retireSubscription(db.Management, tenant.Write(), sub, 1); err != nil {
		t.Errorf("retention up to the cursor: %v", err)
	}
}

// TestRetireSubscriptionStale: another revision is a conflict, before anything else is looked at.
func TestRetireSubscriptionStale(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	db.AppendEvents(t, tenant, 1, `1`)
	for _, revision := range []uint64{0, 2} {
		wantUnchanged(t, db, "revision", errs.StateConflict, []string{"at revision 1"}, func() error {
			_, err := retireSubscription(db.Management, tenant.Write(), sub, revision)
			return err
		})
	}
	other := db.Tenant(t)
	wantUnchanged(t, db, "another namespace", errs.NotFound, nil, func() error {
		_, err := retireSubscription(db.Management, other.Write(), sub, 1)
		return err
	})
}
