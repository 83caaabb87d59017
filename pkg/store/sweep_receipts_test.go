package store_test

import (
	"context"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// TestOldReceiptsGoInSmallBatches and fresh ones stay, with several replicas sweeping at once.
func TestOldReceiptsGoInSmallBatches(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	ctx, tenant := context.Background(), db.Tenant(t)
	for range 25 {
		db.Submit(t, tenant, `1`)
	}
	if _, err := db.SQL.Exec("UPDATE receipts SET created_at = UTC_TIMESTAMP(6) - INTERVAL 720 HOUR - INTERVAL 1 SECOND ORDER BY idempotency_key LIMIT 20"); err != nil {
		t.Fatal(err)
	}
	const age = 720 * time.Hour
	if n, err := db.Management.SweepReceipts(ctx, age, 8); err != nil || n != 8 {
		t.Fatalf("a batch of 8 removed %d, %v", n, err)
	}
	total := make(chan int)
	for range 3 {
		go func() {
			sum := 0
			for {
				n, err := db.Management.SweepReceipts(ctx, age, 5)
				if err != nil {
					t.Error(err)
				}
				if sum += n; n == 0 {
					total <- sum
					return
				}
			}
		}()
	}
	if sum := <-total + <-total + <-total; sum != 12 {
		t.Errorf("three replicas removed %d of the 12 that were left", sum)
	}
	var left int
	if err := db.SQL.QueryRow("SELECT COUNT(*) FROM receipts").Scan(&left); err != nil || left != 5 {
		t.Errorf("%d receipts are left, %v", left, err)
	}
}
