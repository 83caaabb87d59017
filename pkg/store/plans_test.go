package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// planRows is how many finished rows each table has while the plans are looked at; ORBIT_PLAN_ROWS
// makes it 5 million for a run by hand.
func planRows(t *testing.T) int {
	text := os.Getenv("ORBIT_PLAN_ROWS")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Every list and every hot read goes through an index and reads no more rows than it needs, whatever
// the tables hold: no filesort, no scan.
func TestPlansOfListsAndHotReads(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000})
	n := planRows(t)
	db.GrowDeliveries(t, tenant, sub, n)
	db.GrowTasks(t, tenant, n)
	db.AppendEvents(t, tenant, 200, `1`)
	for range 30 {
		db.Submit(t, tenant, `1`)
	}
	session := ids.New()
	turn, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, []store.SessionWant{{SessionID: session, Capacity: 20}})
	if err != nil || len(turn.Claimed) != 20 {
		t.Fatal(len(turn.Claimed), err)
	}
	p := db.NewProxy(t)
	ctx, c, s := context.Background(), tenant.Caller, p.Store
	const limit = 20
	page := store.Page{Limit: limit}
	deep := store.Page{Limit: limit, After: &store.Position{Sequence: uint64(n / 2), ID: ids.ID{0x80}}}
	proofs := make([]delivery.Command, len(turn.Claimed))
	for i, one := range turn.Claimed {
		proofs[i] = delivery.Command{Kind: delivery.Ack, Proof: delivery.Proof{DeliveryID: one.Delivery.ID, Epoch: one.Delivery.LeaseEpoch, Digest: one.Secret.Digest()}}
	}
	for _, one := range []struct {
		name string
		most int // rows any one statement may read
		call func() error
	}{
		{"list deliveries", limit + 1, func() error { _, _, err := s.ListDeliveries(ctx, c, sub, "", page); return err }},
		{"list deliveries, deep", limit + 1, func() error { _, _, err := s.ListDeliveries(ctx, c, sub, "", deep); return err }},
		{"list acked", limit + 1, func() error { _, _, err := s.ListDeliveries(ctx, c, sub, delivery.Acked, deep); return err }},
		{"list pending", limit + 1, func() error { _, _, err := s.ListDeliveries(ctx, c, sub, delivery.Pending, page); return err }},
		{"list expired", limit + 1, func() error { _, _, err := s.ListDeliveries(ctx, c, sub, delivery.Expired, page); return err }},
		{"read delivery", 2, func() error { _, _, err := s.GetDelivery(ctx, c, sub, turn.Claimed[0].Delivery.ID); return err }},
		{"list subscriptions", limit + 1, func() error { _, _, err := s.ListSubscriptions(ctx, c, tenant.QueueID, page); return err }},
		{"list queues", limit + 1, func() error { _, _, err := s.ListQueues(ctx, c, page); return err }},
		{"list audit", limit + 1, func() error { _, _, err := s.ListAudit(ctx, c, page); return err }},
		{"list audit, deep", limit + 1, func() error { _, _, err := s.ListAudit(ctx, c, deep); return err }},
		{"list tasks", limit + 1, func() error {
			_, _, err := s.ListTasks(ctx, c, store.TaskFilter{QueueID: tenant.QueueID}, page)
			return err
		}},
		{"list tasks, deep", limit + 1, func() error {
			_, _, err := s.ListTasks(ctx, c, store.TaskFilter{QueueID: tenant.QueueID}, deep)
			return err
		}},
		{"list succeeded", limit + 1, func() error {
			_, _, err := s.ListTasks(ctx, c, store.TaskFilter{QueueID: tenant.QueueID, State: task.Succeeded}, deep)
			return err
		}},
		{"list by label", 2 * (limit + 1), func() error {
			_, _, err := s.ListTasks(ctx, c, store.TaskFilter{QueueID: tenant.QueueID, LabelName: "customer", LabelValue: "c"}, deep)
			return err
		}},
		{"look for work", 2, func() error {
			_, err := s.QueuesWithWork(ctx, []store.ReadyQueue{{NamespaceID: tenant.NamespaceID, QueueID: tenant.QueueID}})
			return err
		}},
		{"scan heads", 1, func() error { _, _, err := s.Streams(ctx, []ids.ID{tenant.NamespaceID}); return err }},
		{"sweep", 1, func() error { _, err := s.SweepAttempts(ctx, 100); return err }},
		{"claim tasks", 2 * 8, func() error {
			_, err := s.ClaimTasks(ctx, tenant.NamespaceID, tenant.QueueID, []store.WorkerWant{{SessionID: session, Worker: "w", Free: 8}})
			return err
		}},
		// A turn reads the live leases, and the waiting rows once more for the next due time.
		{"claim deliveries", 200, func() error {
			_, err := s.ClaimDeliveries(ctx, tenant.NamespaceID, sub, []store.SessionWant{{SessionID: session, Capacity: 28}})
			return err
		}},
		{"settle", 2 * 20, func() error {
			_, _, err := s.SettleDeliveries(ctx, tenant.NamespaceID, sub, tenant.CredentialID, proofs, nil)
			return err
		}},
	} {
		var mu sync.Mutex
		var reads []string
		p.Decide(func(query string) storetest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if q := strings.TrimSpace(query); strings.HasPrefix(q, "SELECT") && strings.Contains(q, "FROM ") || strings.HasPrefix(q, "(SELECT") {
				reads = append(reads, q)
			}
			return storetest.Pass
		})
		if err := one.call(); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		p.Decide(nil)
		if len(reads) == 0 {
			t.Errorf("%s: no read was seen", one.name)
		}
		for _, query := range reads {
			checkPlan(t, db, one.name, query, one.most)
		}
	}
}

// checkPlan explains a statement as it was sent and counts what it reads when it runs again.
func checkPlan(t *testing.T, db *storetest.DB, name, query string, most int) {
	t.Helper()
	ctx := context.Background()
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	short := query[:min(len(query), 300)]
	rows, err := conn.QueryContext(ctx, "EXPLAIN "+query)
	if err != nil {
		t.Fatalf("%s: explain %s: %v", name, short, err)
	}
	for _, plan := range table(t, rows) {
		if strings.Contains(plan["Extra"], "filesort") && !strings.Contains(query, "UNION ALL") {
			t.Errorf("%s sorts: %v\n%s", name, plan, short)
		}
		if plan["type"] == "ALL" && plan["table"] != "credentials" && !strings.HasPrefix(plan["table"], "<") && !small[plan["table"]] {
			t.Errorf("%s scans: %v\n%s", name, plan, short)
		}
	}
	if _, err := conn.ExecContext(ctx, "FLUSH STATUS"); err != nil {
		t.Fatal(err)
	}
	result, err := conn.QueryContext(ctx, query)
	if err != nil {
		t.Fatalf("%s: %s: %v", name, short, err)
	}
	table(t, result)
	counters, err := conn.QueryContext(ctx, "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, c := range table(t, counters) {
		if c["Variable_name"] == "Handler_read_rnd_next" || c["Variable_name"] == "Handler_read_rnd_deleted" {
			continue // of the temporary results of SHOW and UNION
		}
		n, err := strconv.Atoi(c["Value"])
		if err != nil {
			t.Fatal(err)
		}
		read += n
	}
	if read > most+4 { // the ends of the ranges
		t.Errorf("%s reads %d rows, want at most %d:\n%s", name, read, most, short)
	}
}

// small tables may be read whole: the optimizer prefers it while they have a handful of rows.
var small = map[string]bool{"result_streams": true, "application_quotas": true, "permits": true, "queues": true, "namespaces": true, "subscriptions": true, "p": true}

// table reads all rows as text.
func table(t *testing.T, rows *sql.Rows) []map[string]string {
	t.Helper()
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for rows.Next() {
		values, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := map[string]string{}
		for i, name := range names {
			row[name] = string(values[i])
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(fmt.Errorf("read rows: %w", err))
	}
	return out
}
