package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// provoked says which tests, or golden exchanges (*.json), provoke each error of R2.6 at this service,
// each close code of api/ws.md and each rule of §6.
var provoked = map[string][]string{
	"INVALID_ARGUMENT":      {"TestFrameFaults", "TestRefusalsBeforeTheUpgrade", "TestMalformedHandshakes", "error_invalid_argument.json", "hello_invalid_argument.json"},
	"UNAUTHENTICATED":       {"TestRefusalsBeforeTheUpgrade", "TestRevocationCloses", "error_unauthenticated.json"},
	"PERMISSION_DENIED":     {"TestRefusalsBeforeTheUpgrade", "TestPingAfterRightsWereLost", "error_permission_denied.json"},
	"NOT_FOUND":             {"TestHelloFaults", "TestFrameFaults", "error_not_found.json", "hello_not_found.json", "error_scope_lost.json"},
	"EVENT_HISTORY_EXPIRED": {"TestAGapInTheHistoryIsNeverPassedOver", "error_event_history_expired.json"},
	"DELIVERY_LEASE_LOST":   {"TestAckAfterTheLeaseMovedOn", "TestRelease", "TestAckBatch", "lease_lost.json", "ack_batch.json"},
	"ATTEMPT_LEASE_LOST":    {"TestReleaseAndRenew", "TestWorkerCommandFaults"},
	"PROTOCOL_REQUIRED":     {"TestRefusalsBeforeTheUpgrade"},
	"CAPACITY_EXCEEDED":     {"TestRoomIsBounded"},
	"UNAVAILABLE":           {"TestTheDatabaseGoesAway", "TestADrainingNode", "error_unavailable.json", "hello_unavailable.json"},
	"INTERNAL":              {"TestInternalTextStaysInTheLog", "close_internal.json"},
	// Not at this service: STATE_CONFLICT has no command here that could meet it; the others are HTTP's alone.
	"STATE_CONFLICT": nil, "IDEMPOTENCY_CONFLICT": nil, "SUBSCRIPTION_LIMIT": nil, "RESOURCE_BUSY": nil,
	"RESOURCE_RETIRED": nil, // comes with retirement

	"1000": {"close_by_client.json"},
	"1002": {"TestBrokenWebSocketFrames"},
	"1008": {"TestHelloFaults", "TestEnvelopeFaultsClose", "TestOnlyFramesKeepAConnection", "close_malformed_envelope.json", "close_wrong_session.json", "close_binary.json", "close_no_hello.json", "close_idle.json"},
	"1009": {"TestEnvelopeFaultsClose", "TestBrokenWebSocketFrames", "close_too_large.json"},
	"1011": {"TestInternalTextStaysInTheLog", "close_internal.json"},
	"1012": {"TestStopUnderAcks", "TestADrainingNode", "close_restart.json"},
	"1013": {"TestTheDatabaseGoesAway", "error_unavailable.json"},
	"4401": {"TestRevocationCloses", "error_unauthenticated.json"},
	"4403": {"TestPingAfterRightsWereLost", "error_permission_denied.json"},
	"4404": {"TestFrameFaults", "error_not_found.json"},
	"4410": {"TestAGapInTheHistoryIsNeverPassedOver", "error_event_history_expired.json"},

	"R6.1":  {"TestEnvelopeFaultsClose", "TestBrokenWebSocketFrames", "TestOffencesEndOnlyTheirConnection", "TestReplay"},
	"R6.2":  {"TestHelloFaults", "hello_deliver_ack_ping.json", "close_no_hello.json"},
	"R6.3":  {"TestCapacityBoundsUnacknowledged", "TestCapacityHoldsOverTwoGateways"},
	"R6.4":  {"TestEventIsDeliveredAndAcknowledged", "TestCrashOnReceiptEndsAtTheBudget", "hello_deliver_ack_ping.json"},
	"R6.5":  {"TestAckAfterTheLeaseMovedOn", "TestLateAcks", "repeated_ack.json", "late_ack.json", "paused.json"},
	"R6.6":  {"TestPingAfterRightsWereLost", "TestOnlyFramesKeepAConnection", "TestASlowReaderIsClosed", "paused.json", "close_idle.json"},
	"R6.7":  {"TestRoomIsBounded", "TestABusyApplicationLeavesRoom", "TestABlockedClaimHoldsUpOnlyItself", "TestASlowReaderIsClosed"},
	"R6.8":  {"TestCrashOnReceiptEndsAtTheBudget", "unacked_reconnect.json"},
	"R6.10": {"TestRelease", "TestExtendKeepsTheLease", "TestAckBatch", "release.json", "extend.json", "ack_batch.json", "generation.json"},
	"R6.11": {"TestStopUnderAcks", "TestADrainingNode", "close_restart.json"},
}

// The table above is whole, and what it names exists.
func TestEveryErrorAndCloseIsProvoked(t *testing.T) {
	t.Parallel()
	want := []string{"R6.1", "R6.2", "R6.3", "R6.4", "R6.5", "R6.6", "R6.7", "R6.8", "R6.10", "R6.11"} // R6.9 is the bench's, R6.12 TestReplay's
	for _, kind := range errs.Kinds {
		want = append(want, string(kind))
	}
	doc, err := os.ReadFile("../../api/ws.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(doc), "\n") {
		if code := strings.Fields(strings.Trim(line, "| ")); len(code) > 0 && len(code[0]) == 4 && strings.Trim(code[0], "0123456789") == "" {
			want = append(want, code[0])
		}
	}
	have := testNames(t)
	for _, name := range want {
		tests, ok := provoked[name]
		if !ok {
			t.Errorf("no test provokes %s", name)
		}
		for _, test := range tests {
			if !have[test] {
				t.Errorf("%s: there is no %s", name, test)
			}
		}
	}
	if len(want) != len(provoked) {
		t.Errorf("%d rows, want %d", len(provoked), len(want))
	}
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	have := map[string]bool{}
	for name := range goldenExchanges(t) {
		have[name+".json"] = true
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				have[f.Name.Name] = true
			}
		}
	}
	return have
}

// A handshake that names our protocol but is no WebSocket's is refused in our envelope.
func TestMalformedHandshakes(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	n := startNode(t, db)
	for name, change := range map[string]func(http.Header){
		"version 12":   func(h http.Header) { h.Set("Sec-Websocket-Version", "12") },
		"no version":   func(h http.Header) { h.Del("Sec-Websocket-Version") },
		"no key":       func(h http.Header) { h.Del("Sec-Websocket-Key") },
		"a short key":  func(h http.Header) { h.Set("Sec-Websocket-Key", "AAAA") },
		"not a base64": func(h http.Header) { h.Set("Sec-Websocket-Key", "!!!!!!!!!!!!!!!!!!!!!!==") },
	} {
		if status, code, _ := n.knock("/v1/events/connect", upgradeHeader(tenant.Token, change)); status != 400 || code != "INVALID_ARGUMENT" {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}
}

// R6.6: a ping after the credential lost its rights is answered by the loss, never by a pong.
func TestPingAfterRightsWereLost(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	n := startNode(t, db)
	for _, c := range []struct {
		queues bool
		code   string
		close  int
	}{{false, "PERMISSION_DENIED", 4403}, {true, "NOT_FOUND", 4404}} {
		tenant := db.Tenant(t)
		s := n.events(tenant.Token, db.Subscribe(t, tenant, subscription.Create{}), 1)
		s.ping()
		withdraw(t, db, tenant, c.queues)
		s.send("events.ping", map[string]any{})
		if f := s.expect("error"); f.Error.Code != c.code || f.SessionID != s.session {
			t.Errorf("%+v, want %s", f, c.code)
		}
		if closed := s.expectClose(c.close); closed.Text != c.code {
			t.Errorf("closed with %q", closed.Text)
		}
	}
}

// R2.6, A3: a cursor below the retention boundary ends the session each time, and never moves by itself.
func TestAGapInTheHistoryIsNeverPassedOver(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	held := n.events(tenant.Token, sub, 1)
	passRetention(t, db, tenant)
	db.AppendEvents(t, tenant, 5, `1`)
	sockets := []*socket{held, n.events(tenant.Token, sub, 1), n.events(tenant.Token, sub, 1)}
	for _, s := range sockets {
		f := s.expect("error")
		if f.Error.Code != "EVENT_HISTORY_EXPIRED" || !strings.Contains(f.Error.Message, "read up to 0, events up to 1 were removed") {
			t.Errorf("%+v", f)
		}
		if closed := s.expectClose(4410); closed.Text != "EVENT_HISTORY_EXPIRED" {
			t.Errorf("closed with %q", closed.Text)
		}
	}
	if got, err := db.Management.GetSubscription(context.Background(), tenant.Caller, sub); err != nil || got.CursorSequence != 0 || got.PendingCount != 0 {
		t.Errorf("then %+v, %v", got, err)
	}
}

// C5: while the database is away commands end their connection with UNAVAILABLE and upgrades get 503; who
// asks for nothing stays connected; afterwards deliveries and proofs are as they were.
func TestTheDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub, quiet := db.Subscribe(t, tenant, subscription.Create{}), db.Subscribe(t, tenant, subscription.Create{})
	p := db.NewProxy(t)
	n := startNodeOn(t, db, p.Store)
	db.AppendEvents(t, tenant, 1, `1`)
	acker, idle := n.events(tenant.Token, sub, 1), n.events(tenant.Token, quiet, 1)
	d, first := acker.delivery(), idle.delivery()
	pinger := n.events(tenant.Token, sub, 1)
	pinger.ping()

	p.Decide(func(string) storetest.Fate { return storetest.DropBefore })
	for name, s := range map[string]*socket{"ack": acker, "ping": pinger} {
		body := map[string]any{}
		if name == "ack" {
			body = d.proof()
		}
		id := s.send(map[string]string{"ack": "event.ack", "ping": "events.ping"}[name], body)
		// A claim turn that fails first ends the connection too, and names no command.
		if f := s.expect("error"); f.Error.Code != "UNAVAILABLE" || f.ReplyTo != id && f.ReplyTo != "" {
			t.Errorf("%s: %+v", name, f)
		}
		if closed := s.expectClose(1013); closed.Text != "UNAVAILABLE" {
			t.Errorf("%s: closed with %q", name, closed.Text)
		}
	}
	status, code, header := n.knock("/v1/events/connect", upgradeHeader(tenant.Token))
	if status != 503 || code != "UNAVAILABLE" || header.Get("Retry-After") == "" {
		t.Errorf("upgrade: %d %s %v", status, code, header)
	}
	p.Decide(nil)

	if _, code := idle.answer("event.ack", first.proof()); code != "" {
		t.Errorf("the idle connection's ack: %q", code)
	}
	again := n.events(tenant.Token, sub, 1)
	if f, code := again.answer("event.ack", d.proof()); code != "" || decode[acked](t, f.Body).Deduplicated {
		t.Errorf("ack on a new connection: %+v %q", f, code)
	}
	db.AppendEvents(t, tenant, 1, `1`)
	if next := idle.delivery(); next.Event.Sequence != "2" {
		t.Errorf("the idle connection got %+v", next)
	}
}

// INTERNAL closes with the request id alone; the log has the cause under that id, once for a connection
// however many of its commands fail of it.
func TestInternalTextStaysInTheLog(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	core, logs := observer.New(zap.InfoLevel)
	n := startNodeLogging(t, db, db.Gateway, zap.New(core))
	db.AppendEvents(t, tenant, 32, `1`)
	s := n.events(tenant.Token, sub, 32)
	var proofs []map[string]any
	for range 32 {
		proofs = append(proofs, s.delivery().proof())
	}
	if _, err := db.SQL.Exec("RENAME TABLE audit TO audit_away"); err != nil {
		t.Fatal(err)
	}
	release := lockSubscription(t, db, tenant, sub) // so that all acks are under way before the first fails
	for _, proof := range proofs {
		s.send("event.ack", proof)
	}
	s.ping()
	release()
	closed := s.expectClose(websocket.CloseInternalServerErr)
	if err := n.stop(); err != nil { // and with it whatever else fails of it
		t.Error(err)
	}
	request, ok := strings.CutPrefix(closed.Text, "internal ")
	if !ok || len(request) != 32 {
		t.Errorf("closed with %q", closed.Text)
	}
	failed := logs.FilterMessage("connection failed").All()
	if len(failed) != 1 {
		t.Fatalf("%d lines say that one connection failed", len(failed))
	}
	if fields := failed[0].ContextMap(); fields["request_id"] != request || fields["session_id"] != s.session || !strings.Contains(fmt.Sprint(fields["error"]), "audit") {
		t.Errorf("logged %v, the client was told %s", fields, request)
	}
}

// R6.6: deliveries received and WebSocket pings are no frames of the client; only frames keep it connected.
func TestOnlyFramesKeepAConnection(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub, other := db.Subscribe(t, tenant, subscription.Create{}), db.Subscribe(t, tenant, subscription.Create{})
	const idle = 1500 * time.Millisecond
	n := startNode(t, db, func(c *config) { c.IdleTimeout = idle })
	began, ended := time.Now(), make(chan error, 1)
	silent, lively := n.events(tenant.Token, sub, 32), n.events(tenant.Token, other, 1)
	go func() {
		for {
			if _, err := silent.read(wait); err != nil {
				ended <- err
				return
			}
		}
	}()
	for pings := 0; ; pings++ {
		select {
		case err := <-ended:
			if took := time.Since(began); !strings.Contains(err.Error(), "1008") || !strings.Contains(err.Error(), "no frame for 1.5s") || took < idle {
				t.Errorf("after %s: %v", took, err)
			}
			lively.ping() // it has been connected for as long
			return
		case <-time.After(100 * time.Millisecond):
		}
		if time.Since(began) > wait {
			t.Fatal("the silent client is still connected")
		}
		if pings < 20 {
			db.AppendEvents(t, tenant, 1, `1`)
		}
		_ = silent.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
		lively.ping()
	}
}

// R6.11: a stopping node answers 503, claims nothing more, takes acks, and sends even those away who say
// hello only now.
func TestADrainingNode(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db, func(c *config) { c.DrainTimeout = wait })
	s := n.events(tenant.Token, sub, 2)
	db.AppendEvents(t, tenant, 1, `1`)
	d := s.delivery()
	late := n.dial("/v1/events/connect", "orbit.events.v1", tenant.Token)
	lateWorker := n.dial("/v1/workers/connect", "orbit.workers.v1", tenant.Token)
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	for n.g.ready.Load() {
		time.Sleep(time.Millisecond)
	}
	for { // the door closes just after readiness
		status, code, header := n.knock("/v1/events/connect", upgradeHeader(tenant.Token))
		if status == 503 && code == "UNAVAILABLE" && header.Get("Retry-After") != "" {
			break
		}
		if status != http.StatusSwitchingProtocols {
			t.Fatalf("%d %s %v", status, code, header)
		}
	}
	db.AppendEvents(t, tenant, 1, `1`)
	if _, before := s.ping(); len(before) > 0 {
		t.Error("a stopping node claimed")
	}
	late.send("events.hello", map[string]any{"subscription_id": sub.String(), "capacity": 1})
	late.expect("events.welcome")
	late.expectClose(1012)
	lateWorker.send("worker.hello", map[string]any{"queue_id": tenant.QueueID.String(), "name": "w", "capacity": 1})
	lateWorker.expect("worker.welcome")
	lateWorker.expectClose(1012)
	if _, code := s.answer("event.ack", d.proof()); code != "" {
		t.Error(code)
	}
	if closed := s.expectClose(1012); closed.Text != "service restart" {
		t.Errorf("closed with %q", closed.Text)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// lockSubscription holds the subscription's row as a claim turn does, until it is released.
func lockSubscription(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID) (release func()) {
	t.Helper()
	tx, err := db.SQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	var id []byte
	if err := tx.QueryRow("SELECT id FROM subscriptions WHERE namespace_id = ? AND id = ? FOR UPDATE", tenant.NamespaceID[:], sub[:]).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// cancelledEvent submits a task and cancels it: one task.cancelled in the log.
func cancelledEvent(t *testing.T, db *storetest.DB, tenant storetest.Tenant) {
	t.Helper()
	id, revision := db.Submit(t, tenant, `null`), ids.Counter(1)
	if _, err := db.Management.CancelTask(context.Background(), tenant.Write(), id, task.Cancel{ExpectedRevision: &revision, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
}

// withdraw takes events:consume, or the queues, from the tenant's credential.
func withdraw(t *testing.T, db *storetest.DB, tenant storetest.Tenant, queues bool) {
	t.Helper()
	rights := store.Rights{AllQueues: queues}
	if !queues {
		rights.Actions = []access.Action{access.EventsConsume}
	}
	if err := db.Owner.WithdrawRights(context.Background(), tenant.CredentialID, rights); err != nil {
		t.Fatal(err)
	}
}

// passRetention appends one event and removes the log up to it.
func passRetention(t *testing.T, db *storetest.DB, tenant storetest.Tenant) {
	t.Helper()
	if _, err := db.SQL.Exec("UPDATE result_streams SET head = head + 1, boundary = head WHERE namespace_id = ?", tenant.NamespaceID[:]); err != nil {
		t.Fatal(err)
	}
}
