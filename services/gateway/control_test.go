package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func configure(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID, revision uint64, enabled bool) {
	t.Helper()
	expected := ids.Counter(revision)
	_, err := db.Management.ConfigureSubscription(context.Background(), tenant.Write(), sub, subscription.Configure{ExpectedRevision: &expected, Enabled: &enabled, Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
}

// ping returns what the pong says of enabled; deliveries that come first are returned too.
func (s *socket) ping() (enabled bool, before []delivered) {
	s.t.Helper()
	id := s.send("events.ping", map[string]any{})
	for {
		f := s.next()
		if f.Type == "event.deliver" {
			before = append(before, decode[delivered](s.t, f.Body))
			continue
		}
		if f.ReplyTo != id {
			s.t.Fatalf("%+v", f)
		}
		return decode[struct {
			Enabled bool `json:"enabled"`
		}](s.t, f.Body).Enabled, before
	}
}

// B8: a pause holds on every node at once, keeps what is in flight, takes its acks, loses nothing.
func TestPauseAndResumeOverThreeNodes(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000})
	db.AppendEvents(t, tenant, 10, `1`)
	var sockets []*socket
	inFlight := map[*socket][]delivered{}
	for i := range 3 {
		s := startNode(t, db).events(tenant.Token, sub, 4)
		sockets = append(sockets, s)
		for range min(4, 10-4*i) {
			inFlight[s] = append(inFlight[s], s.delivery())
		}
	}
	configure(t, db, tenant, sub, 1, false)
	db.AppendEvents(t, tenant, 100, `1`)
	for _, s := range sockets {
		if enabled, before := s.ping(); enabled || len(before) > 0 {
			t.Errorf("after the pause: enabled %v, %d new deliveries", enabled, len(before))
		}
		for _, d := range inFlight[s] {
			if f, code := s.answer("event.ack", d.proof()); code != "" || decode[acked](t, f.Body).Deduplicated {
				t.Errorf("ack while paused: %q", code)
			}
		}
		if _, before := s.ping(); len(before) > 0 {
			t.Errorf("acks while paused brought %d deliveries", len(before))
		}
	}
	late := startNode(t, db).events(tenant.Token, sub, 1) // a paused subscription still connects
	if enabled, _ := late.ping(); enabled {
		t.Error("a new connection is told that it is enabled")
	}
	_ = late.ws.Close()
	configure(t, db, tenant, sub, 2, true)
	got := 0
	for _, s := range sockets {
		for range 4 {
			d := s.delivery()
			if _, code := s.answerPast("event.ack", d.proof(), &got); code != "" {
				t.Error(code)
			}
			got++
		}
	}
	if got < 12 {
		t.Errorf("%d deliveries after the resume", got)
	}
}

// answerPast is answer where deliveries may come first; they are counted.
func (s *socket) answerPast(frameType string, body any, deliveries *int) (frame, string) {
	s.t.Helper()
	id := s.send(frameType, body)
	for {
		f := s.next()
		if f.Type == "event.deliver" {
			*deliveries++
			continue
		}
		if f.ReplyTo != id {
			s.t.Fatalf("%s was answered by %+v", frameType, f)
		}
		if f.Error != nil {
			return f, f.Error.Code
		}
		return f, ""
	}
}

// A manual retry reaches a connected consumer within a second, without a new event.
func TestManualRetryIsPickedUp(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 1})
	n := startNode(t, db)
	s := n.events(tenant.Token, sub, 2)
	db.Outcome(t, tenant, `1`)
	d := s.delivery()
	lapse(t, db, sub)
	recoverLeases(t, db, tenant, sub)
	id, err := ids.ParseID(d.Delivery.ID)
	if err != nil {
		t.Fatal(err)
	}
	expected := ids.Counter(3)
	if _, err := db.Management.RetryDelivery(context.Background(), tenant.Write(), sub, id, delivery.Retry{ExpectedRevision: &expected, Reason: "fixed", AdditionalAttempts: 1}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	again := s.delivery()
	if again.Delivery.ID != d.Delivery.ID || again.Delivery.LeaseEpoch != "2" || again.Delivery.Attempts != 2 {
		t.Errorf("%+v", again.Delivery)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}

// D5: a revoked secret closes its connections within 2 s, without a ping; the other secret's stay.
func TestRevocationCloses(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	second := ids.NewSecret()
	digest := second.Digest()
	if _, err := db.SQL.Exec("INSERT INTO credential_secrets (credential_id, digest, created_at) VALUES (?, ?, UTC_TIMESTAMP(6))", tenant.CredentialID[:], digest[:]); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, db)
	old, fresh := n.events(tenant.Token, sub, 1), n.events(access.FormatToken(tenant.CredentialID, second), sub, 1)
	worker := n.worker(tenant.Token, tenant.QueueID, 1)
	if _, err := db.SQL.Exec("UPDATE credential_secrets SET revoked_at = UTC_TIMESTAMP(6) WHERE credential_id = ? AND digest <> ?", tenant.CredentialID[:], digest[:]); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for name, s := range map[string]*socket{"events": old, "worker": worker} {
		if f := s.expect("error"); f.Error.Code != "UNAUTHENTICATED" || f.ReplyTo != "" {
			t.Errorf("%s: %+v", name, f)
		}
		if closed := s.expectClose(4401); closed.Text != "UNAUTHENTICATED" {
			t.Errorf("%s: closed with %q", name, closed.Text)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
	if enabled, _ := fresh.ping(); !enabled {
		t.Error("the other secret's connection does not work")
	}
	if _, err := db.SQL.Exec("UPDATE credentials SET actions = 'events:read' WHERE id = ?", tenant.CredentialID[:]); err != nil {
		t.Fatal(err)
	}
	if f := fresh.expect("error"); f.Error.Code != "PERMISSION_DENIED" {
		t.Errorf("without the action: %+v", f)
	}
	fresh.expectClose(4403)
}

// A claim that waits for a row lock holds up nothing but itself: acks of other subscriptions and all
// pings are answered while the lock is still held.
func TestABlockedClaimHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant, other := db.Tenant(t), db.Tenant(t)
	blocked, free := db.Subscribe(t, tenant, subscription.Create{}), db.Subscribe(t, other, subscription.Create{})
	n := startNode(t, db)
	a, b := n.events(tenant.Token, blocked, 1), n.events(other.Token, free, 1)
	tx, err := db.SQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var id []byte
	if err := tx.QueryRow("SELECT id FROM subscriptions WHERE namespace_id = ? AND id = ? FOR UPDATE", tenant.NamespaceID[:], blocked[:]).Scan(&id); err != nil {
		t.Fatal(err)
	}
	db.AppendEvents(t, tenant, 1, `1`)
	db.AppendEvents(t, other, 20, `1`)
	for range 20 {
		if _, code := b.answer("event.ack", b.delivery().proof()); code != "" {
			t.Fatal(code)
		}
		if _, before := a.ping(); len(before) > 0 {
			t.Fatal("the blocked claim went through")
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if d := a.delivery(); d.Event.Sequence != "1" {
		t.Errorf("then %+v", d)
	}
}

// D2: a client that stops reading is closed within the write limit; its peers notice nothing.
func TestASlowReaderIsClosed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	slowSub, sub := db.Subscribe(t, tenant, subscription.Create{}), db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db, func(c *config) { c.WriteTimeout = 300 * time.Millisecond })
	db.AppendEvents(t, tenant, 64, `"`+strings.Repeat("x", 250_000)+`"`)
	n.events(tenant.Token, slowSub, 32) // reads no more: 8 MB will not fit into the socket's buffers
	peer := n.events(tenant.Token, sub, 1)
	for range 5 {
		if _, code := peer.answer("event.ack", peer.delivery().proof()); code != "" {
			t.Fatal(code)
		}
	}
	for deadline := time.Now().Add(wait); n.g.eventDoor.Open() > 1; {
		if time.Now().After(deadline) {
			t.Fatal("the slow connection is still open")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if enabled, _ := peer.ping(); !enabled {
		t.Error("the peer is gone")
	}
}

// R6.11: at a stop, every ack that was answered is in the database, and clients get 1012.
func TestStopUnderAcks(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000})
	n := startNode(t, db)
	db.AppendEvents(t, tenant, 2000, `1`)
	s := n.events(tenant.Token, sub, 32)
	answered := map[string]string{} // by message id, then by delivery
	var sure []string
	var acks atomic.Int32
	stopped := make(chan error, 1)
	for {
		f, err := s.read(wait)
		if err != nil {
			if !strings.Contains(err.Error(), "1012") {
				t.Errorf("ended by %v", err)
			}
			break
		}
		switch f.Type {
		case "event.deliver":
			d := decode[delivered](t, f.Body)
			raw := fmt.Sprintf(`{"protocol_version":"1","type":"event.ack","message_id":%q,"session_id":%q,"body":{"delivery_id":%q,"epoch":%q,"lease_secret":%q}}`,
				d.Delivery.ID, s.session, d.Delivery.ID, d.Delivery.LeaseEpoch, d.LeaseSecret)
			answered[d.Delivery.ID] = ""
			s.raw(raw)
		case "ack":
			sure = append(sure, f.ReplyTo)
			if acks.Add(1) == 200 {
				go func() { stopped <- n.stop() }()
			}
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if len(sure) < 200 || len(sure) != len(answered) {
		t.Errorf("%d deliveries, %d answered acks", len(answered), len(sure))
	}
	for _, id := range sure {
		if got := stateOf(t, db, tenant, sub, id); got != delivery.Acked {
			t.Errorf("delivery %s was answered and is %s", id, got)
		}
	}
}

// Fair rotation: an application with a large backlog and many connections does not keep another waiting.
func TestABusyApplicationLeavesRoom(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	busy, quiet := db.Tenant(t), db.Tenant(t)
	n := startNode(t, db)
	db.AppendEvents(t, busy, 20_000, `1`)
	var drained atomic.Int64
	for range 4 {
		sub := db.Subscribe(t, busy, subscription.Create{FromSequence: new(ids.Counter), MaxPending: 1000})
		for range 2 {
			s := n.events(busy.Token, sub, 32)
			go func() {
				for {
					f, err := s.read(wait)
					if err != nil {
						return
					}
					if f.Type == "event.deliver" {
						drained.Add(1)
						d := decode[delivered](t, f.Body)
						if s.ws.WriteJSON(frame{ProtocolVersion: "1", Type: "event.ack", MessageID: ids.New().String(), SessionID: s.session, Body: fmt.Appendf(nil,
							`{"delivery_id":%q,"epoch":%q,"lease_secret":%q}`, d.Delivery.ID, d.Delivery.LeaseEpoch, d.LeaseSecret)}) != nil {
							return
						}
					}
				}
			}()
		}
	}
	s := n.events(quiet.Token, db.Subscribe(t, quiet, subscription.Create{}), 1)
	for range 10 {
		before := drained.Load()
		db.AppendEvents(t, quiet, 1, `1`)
		d := s.delivery()
		// Four subscriptions of the busy application have two connections of 32 each: a round of all of them is 256.
		if passed := drained.Load() - before; passed > 4*256 {
			t.Errorf("%d deliveries of the busy application came before the quiet one's", passed)
		}
		if _, code := s.answer("event.ack", d.proof()); code != "" {
			t.Fatal(code)
		}
	}
	if drained.Load() == 0 {
		t.Error("the busy application got nothing")
	}
}

// E3: the largest accepted result fits a frame and arrives byte for byte.
func TestTheLargestResultArrives(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	worker, s := n.worker(tenant.Token, tenant.QueueID, 1), n.events(tenant.Token, sub, 1)
	for _, size := range []int{65_535, 65_536, 262_143, 262_144, 262_145} {
		db.Submit(t, tenant, `"`+strings.Repeat("i", min(size, 262_144)-2)+`"`)
		a := worker.assignment()
		if want := `"` + strings.Repeat("i", min(size, 262_144)-2) + `"`; string(a.Task.Input) != want {
			t.Errorf("an input of %d bytes came as %d", len(want), len(a.Task.Input))
		}
		result := `"` + strings.Repeat("r", size-2) + `"`
		proof := fmt.Sprintf(`"attempt_id":%q,"epoch":%q,"lease_secret":%q`, a.Attempt.ID, a.Attempt.Epoch, a.LeaseSecret)
		send := func(frameType, rest string) frame {
			worker.raw(`{"protocol_version":"1","type":"` + frameType + `","message_id":"` + ids.New().String() + `","session_id":"` + worker.session + `","body":{` + proof + rest + `}}`)
			return worker.next()
		}
		f := send("attempt.complete", `,"result":`+result)
		if size > 262_144 {
			if f.Error == nil || f.Error.Code != "INVALID_ARGUMENT" || !strings.Contains(f.Error.Message, "262144") {
				t.Fatalf("%d bytes: %+v", size, f)
			}
			if !strings.Contains(f.Error.Message, "not retryable") {
				t.Errorf("the worker is told %q", f.Error.Message)
			}
			if f := send("attempt.fail", `,"error":{"code":"RESULT_TOO_LARGE","message":"x"},"retryable":false`); f.Error != nil || !strings.Contains(string(f.Body), `"state":"FAILED"`) {
				t.Fatalf("%+v", f)
			}
			continue
		}
		if f.Error != nil {
			t.Fatalf("%d bytes: %+v", size, f.Error)
		}
		d := s.delivery()
		if !strings.Contains(string(d.Event.Snapshot), `"result":`+result+`,`) {
			t.Errorf("%d bytes do not arrive as they were", size)
		}
		if _, code := s.answer("event.ack", d.proof()); code != "" {
			t.Fatal(code)
		}
	}
}

// An idle gateway asks little, however many subscriptions are attached: at most 55 statements a second.
func TestAnIdleGatewayAsksLittle(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	p := db.NewProxy(t)
	n := startNodeOn(t, db, p.Store)
	var subs []ids.ID
	for range 64 {
		subs = append(subs, db.Subscribe(t, tenant, subscription.Create{}))
	}
	for i := range 128 {
		n.events(tenant.Token, subs[i%64], 1).ping()
	}
	var asked atomic.Int64
	p.Decide(func(string) storetest.Fate { asked.Add(1); return storetest.Pass })
	const seconds = 3
	time.Sleep(seconds * time.Second)
	p.Decide(nil)
	if n := asked.Load(); n > 55*seconds || n < 10*seconds {
		t.Errorf("%d statements in %d s", n, seconds)
	}
}
