package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// exact holds what encoding/json would rewrite: numbers, order, spaces, escapes (E2).
const exact = `{"z":1,"a":9007199254740993, "b":18446744073709551615,"c":1.0,"d":1e400,"e":"<&>\u2028\u0041","f":[ ]}`

func dial(t *testing.T, g *gateway, o EventOptions) (*EventConn, *peer) {
	t.Helper()
	o.URL, o.Token, o.SubscriptionID = g.URL, testToken, testSub
	type opened struct {
		c   *EventConn
		err error
	}
	ch := make(chan opened, 1)
	go func() {
		c, err := DialEvents(context.Background(), o)
		ch <- opened{c, err}
	}()
	p := g.open(t, testLease, testInterval)
	r := must(t, "dial", ch)
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { g.seeOff(); r.c.Close() })
	return r.c, p
}

func TestDialEvents(t *testing.T) {
	t.Parallel()
	c, p := dial(t, newGateway(t), EventOptions{Capacity: 7, Extensions: []string{"generation"}})
	if p.path != "/v1/events/connect" || p.ws.Subprotocol() != "orbit.events.v1" {
		t.Errorf("path %s, subprotocol %s", p.path, p.ws.Subprotocol())
	}
	want := `{"subscription_id":"` + testSub + `","capacity":7,"extensions":["generation"]}`
	if string(p.hello.Body) != want || p.hello.Type != "events.hello" || p.hello.SessionID != "" {
		t.Errorf("hello %s %s", p.hello.Type, p.hello.Body)
	}
	w := c.Welcome
	if w.SessionID != p.session || w.Capacity != 7 || w.LeaseDuration != 30*time.Second || w.HeartbeatInterval != 15*time.Second || !w.Enabled {
		t.Errorf("welcome %+v", w)
	}
}

func TestReceiveAndAckAreByteExact(t *testing.T) {
	t.Parallel()
	c, p := dial(t, newGateway(t), EventOptions{})
	p.push("event.deliver", deliverBody(1, "1", exact))
	d, err := c.Receive(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(d.Event.Snapshot.Result); got != exact {
		t.Errorf("result %s", got)
	}
	if got, want := string(d.RawEvent), eventText(1, exact); got != want {
		t.Errorf("event\n got %s\nwant %s", got, want)
	}
	if d.ID != id(1) || d.Event.ID != id(1001) || d.LeaseEpoch != "1" || d.Attempts != 1 || d.Event.Type != TaskSucceeded {
		t.Errorf("delivery %+v", d)
	}
	saved, err := json.Marshal(d.Proof())
	if err != nil {
		t.Fatal(err)
	}
	var proof Proof
	if err := json.Unmarshal(saved, &proof); err != nil || proof != d.Proof() {
		t.Errorf("proof came back as %v %v", proof, err)
	}
	for _, text := range []string{fmt.Sprint(proof), fmt.Sprintf("%+v %#v %s %q", proof, proof, proof.LeaseSecret, proof.LeaseSecret), fmt.Sprintf("%+v", d)} {
		if strings.Contains(text, testSecret) {
			t.Errorf("the secret is printed: %s", text)
		}
	}
	go func() {
		f := p.next("event.ack")
		if want := `{"delivery_id":"` + id(1) + `","epoch":"1","lease_secret":"` + testSecret + `"}`; string(f.Body) != want {
			t.Errorf("ack %s", f.Body)
		}
		p.reply(f, "ack", ackBody(proof, true))
		p.refuse(p.next("event.ack"), ErrDeliveryLeaseLost)
		p.reply(p.next("events.ping"), "ack", `{"server_time":"2026-09-17T10:00:00Z","enabled":false}`)
	}()
	a, err := c.Ack(context.Background(), proof)
	if err != nil || !a.Deduplicated || a.DeliveryID != id(1) || a.AcknowledgedAt.IsZero() {
		t.Errorf("ack %+v %v", a, err)
	}
	if _, err := c.Ack(context.Background(), proof); !errors.Is(err, ErrDeliveryLeaseLost) {
		t.Errorf("ack with an old proof: %v", err)
	}
	if pong, err := c.Ping(context.Background()); err != nil || pong.Enabled {
		t.Errorf("the connection must stay: %+v %v", pong, err)
	}
}

func TestEventExtensions(t *testing.T) {
	t.Parallel()
	c, p := dial(t, newGateway(t), EventOptions{})
	a := Proof{DeliveryID: id(1), Epoch: "1", LeaseSecret: testSecret}
	b := Proof{DeliveryID: id(2), Epoch: "18446744073709551615", LeaseSecret: testSecret}
	member := func(p Proof) string {
		return `"delivery_id":"` + p.DeliveryID + `","epoch":"` + p.Epoch + `","lease_secret":"` + testSecret + `"`
	}
	go func() {
		for _, want := range []struct{ typ, body, reply string }{
			{"event.extend", `{` + member(a) + `}`, `{"lease_until":"2026-09-17T10:01:00Z"}`},
			{"event.release", `{` + member(a) + `,"delay_ms":1500,"refund":true}`, `{"available_at":"2026-09-17T10:01:00Z"}`},
			{"event.release", `{` + member(a) + `,"delay_ms":900000,"refund":false}`, `{}`},
			{"event.ack_batch", `{"acks":[{` + member(a) + `},{` + member(b) + `}]}`, `{"results":[` + ackBody(a, true) +
				`,{"delivery_id":"` + id(2) + `","epoch":"1","error":{"code":"DELIVERY_LEASE_LOST","message":"no"}}]}`},
		} {
			f := p.next(want.typ)
			if string(f.Body) != want.body {
				t.Errorf("%s\n got %s\nwant %s", want.typ, f.Body, want.body)
			}
			p.reply(f, "ack", want.reply)
		}
	}()
	ctx := context.Background()
	if until, err := c.Extend(ctx, a); err != nil || until.Minute() != 1 {
		t.Errorf("extend %v %v", until, err)
	}
	if err := c.Release(ctx, a, 1500*time.Millisecond, true); err != nil {
		t.Error(err)
	}
	if err := c.Release(ctx, a, time.Hour, false); err != nil {
		t.Error(err)
	}
	items, err := c.AckBatch(ctx, []Proof{a, b})
	if err != nil || len(items) != 2 || items[0].Err != nil || !items[0].Deduplicated || !errors.Is(items[1].Err, ErrDeliveryLeaseLost) {
		t.Errorf("batch %+v %v", items, err)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	c, p := dial(t, newGateway(t), EventOptions{Capacity: 32})
	const calls = 200
	go func() {
		for range calls {
			f := p.read()
			if f.Type == "events.ping" {
				p.reply(f, "ack", `{"enabled":true,"server_time":"2026-09-17T10:00:00Z"}`)
				continue
			}
			var proof Proof
			p.into(f, &proof)
			p.reply(f, "ack", ackBody(proof, false))
		}
	}()
	var wg sync.WaitGroup
	for i := range calls {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if i%2 == 0 {
				if pong, err := c.Ping(context.Background()); err != nil || !pong.Enabled {
					t.Errorf("ping %+v %v", pong, err)
				}
				return
			}
			if a, err := c.Ack(context.Background(), Proof{DeliveryID: id(i), Epoch: "1"}); err != nil || a.DeliveryID != id(i) {
				t.Errorf("ack %d was answered %+v %v", i, a, err)
			}
		}()
	}
	wg.Wait()
}

func TestAutomaticHeartbeat(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	ch := make(chan *EventConn, 1)
	go func() {
		c, err := DialEvents(context.Background(), EventOptions{URL: strings.Replace(g.URL, "http", "ws", 1), Token: testToken, SubscriptionID: testSub})
		if err != nil {
			t.Error(err)
		}
		ch <- c
	}()
	p := g.open(t, testLease, 200)
	c := must(t, "dial", ch)
	defer func() { g.seeOff(); c.Close() }()
	for range 3 {
		p.reply(p.next("events.ping"), "ack", `{"enabled":true,"server_time":"2026-09-17T10:00:00Z"}`)
	}
	p.next("events.ping") // not answered: the peer is half open (D3)
	must(t, "the dead peer is noticed", c.Done())
	var closed *CloseError
	if _, err := c.Receive(context.Background()); !errors.As(err, &closed) || closed.Code != CloseAbnormal || !closed.Reconnect() {
		t.Errorf("got %v", err)
	}
}

func TestHowAnEventConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(*peer)
		code int
		is   error
		back bool
	}{
		"revoked": {func(p *peer) {
			p.write("error", "", "error", `{"code":"UNAUTHENTICATED","message":"revoked"}`)
			p.bye(4401, "UNAUTHENTICATED")
		}, 4401, ErrUnauthenticated, false},
		"retired":     {func(p *peer) { p.bye(4410, "RESOURCE_RETIRED") }, 4410, ErrResourceRetired, false},
		"restart":     {func(p *peer) { p.bye(1012, "service restart") }, 1012, nil, true},
		"network":     {func(p *peer) { p.bye(CloseAbnormal, "") }, CloseAbnormal, nil, true},
		"binary":      {func(p *peer) { _ = p.ws.WriteMessage(2, []byte("{}")) }, CloseAbnormal, nil, true},
		"no JSON":     {func(p *peer) { _ = p.ws.WriteMessage(1, []byte("{")) }, CloseAbnormal, nil, true},
		"no delivery": {func(p *peer) { p.push("event.deliver", `{"delivery":[]}`) }, CloseAbnormal, nil, true},
		"too big": {func(p *peer) {
			_ = p.ws.WriteMessage(1, []byte(`"`+strings.Repeat("x", maxFrame)+`"`))
		}, CloseAbnormal, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, p := dial(t, newGateway(t), EventOptions{})
			p.push("event.deliver", deliverBody(1, "1", "1"))
			c.end(p)
			if d, err := conn.Receive(context.Background()); err != nil || d.ID != id(1) {
				t.Fatalf("what had arrived must come first: %v", err)
			}
			_, err := conn.Receive(context.Background())
			var closed *CloseError
			if !errors.As(err, &closed) || closed.Code != c.code || closed.Reconnect() != c.back || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("ended with %v", err)
			}
			if _, err := conn.Ack(context.Background(), Proof{}); !errors.As(err, &closed) {
				t.Errorf("ack after the end: %v", err)
			}
		})
	}
}

func TestCloseSaysGoodbye(t *testing.T) {
	t.Parallel()
	c, p := dial(t, newGateway(t), EventOptions{})
	go c.Close()
	if code := p.closed(); code != 1000 {
		t.Errorf("close code %d", code)
	}
	must(t, "end", c.Done())
	if _, err := c.Receive(context.Background()); !errors.Is(err, ErrConnClosed) {
		t.Errorf("receive: %v", err)
	}
	if _, err := c.Ping(context.Background()); !errors.Is(err, ErrConnClosed) {
		t.Errorf("ping: %v", err)
	}
}

func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	envelope := func(code Code) string {
		return `{"request_id":"` + id(7) + `","error":{"code":"` + string(code) + `","message":"no"}}`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		is     error
		final  bool
	}{
		"unknown credential": {401, envelope(ErrUnauthenticated), ErrUnauthenticated, true},
		"no action":          {403, envelope(ErrPermissionDenied), ErrPermissionDenied, true},
		"other protocol":     {426, envelope(ErrProtocolRequired), ErrProtocolRequired, true},
		"no room":            {429, envelope(ErrCapacityExceeded), ErrCapacityExceeded, false},
		"away":               {503, envelope(ErrUnavailable), ErrUnavailable, false},
		"a proxy's 404":      {404, "<html>", ErrInternal, false},
		"a proxy's 401":      {401, "", ErrInternal, false},
		"a proxy's 502":      {502, "bad gateway", ErrUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer s.Close()
			_, err := DialEvents(context.Background(), EventOptions{URL: s.URL, Token: testToken, SubscriptionID: testSub})
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, c.is) || e.HTTPStatus != c.status || e.RetryAfter != time.Second || final(err) != c.final {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestHelloRefused(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	ch := make(chan error, 1)
	go func() {
		_, err := DialEvents(context.Background(), EventOptions{URL: g.URL, Token: testToken, SubscriptionID: testSub})
		ch <- err
	}()
	p := g.accept(t)
	p.refuse(p.hello, ErrNotFound)
	p.bye(4404, "NOT_FOUND")
	if err := must(t, "dial", ch); !errors.Is(err, ErrNotFound) || !final(err) {
		t.Errorf("got %v", err)
	}
}

func TestTokensStayOffPlainHTTP(t *testing.T) {
	t.Parallel()
	for base, ok := range map[string]bool{
		"http://127.0.0.1:1": true, "ws://localhost:1": true, "http://[::1]:1": true, "https://orbit.example.com": true,
		"http://orbit.example.com": false, "ws://10.0.0.1": false, "https://u:p@orbit.example.com": false, "https://h?token=x": false,
		"ftp://h": false, "orbit.example.com": false, "": false, "http://localhost.example.com": false,
	} {
		if _, err := parseBase(base, testToken, false); (err == nil) != ok {
			t.Errorf("%s: %v", base, err)
		}
	}
	if _, err := parseBase("http://orbit.example.com", testToken, true); err != nil {
		t.Error(err)
	}
	if _, err := DialEvents(context.Background(), EventOptions{URL: "http://orbit.example.com", Token: testToken, SubscriptionID: testSub}); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}
