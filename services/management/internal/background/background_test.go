package background

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestTwoReplicasSweep: each lost attempt is decided once, old receipts go, and Run returns when
// told to.
func TestTwoReplicasSweep(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	for range 30 {
		db.Submit(t, tenant, `1`)
	}
	if n := len(db.Claim(t, tenant, 30)); n != 30 {
		t.Fatalf("claimed %d", n)
	}
	for _, query := range []string{
		"UPDATE permits SET lease_until = '2020-01-01'",
		"UPDATE receipts SET created_at = '2020-01-01'",
	} {
		if _, err := db.SQL.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	for range 2 {
		work := New(db.Management, zap.NewNop(), Config{Attempts: 10 * time.Millisecond, ReceiptAge: 720 * time.Hour})
		go func() { done <- work.Run(ctx) }()
	}
	left := func() (n int) {
		if err := db.SQL.QueryRow("SELECT (SELECT COUNT(*) FROM permits) + (SELECT COUNT(*) FROM receipts)").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(30 * time.Second); left() > 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	var review, events int
	if err := db.SQL.QueryRow("SELECT (SELECT COUNT(*) FROM tasks WHERE state = 'NEEDS_REVIEW'), (SELECT COUNT(*) FROM result_events)").Scan(&review, &events); err != nil {
		t.Fatal(err)
	}
	if review != 30 || events != 30 || left() != 0 {
		t.Errorf("%d tasks need review, %d events, %d rows are left", review, events, left())
	}
}
