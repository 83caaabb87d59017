package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

const (
	anID = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	// zeroSecret is a canonical secret that proves nothing.
	zeroSecret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func TestHelloFaults(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant, stranger := db.Tenant(t), db.Tenant(t)
	sub, foreign := db.Subscribe(t, tenant, subscription.Create{}), db.Subscribe(t, stranger, subscription.Create{})
	n := startNode(t, db, func(c *config) { c.HelloTimeout = 300 * time.Millisecond })
	hello := func(body string) string {
		return `{"protocol_version":"1","type":"events.hello","message_id":"` + anID + `","body":` + body + `}`
	}
	ok := fmt.Sprintf(`{"subscription_id":"%s","capacity":1}`, sub)
	for name, c := range map[string]struct {
		frame string
		code  string // of the error frame, "" for none
		close int
	}{
		"nothing in time":        {"", "", 1008},
		"not JSON":               {"hello", "", 1008},
		"an array":               {"[]", "", 1008},
		"another type":           {strings.Replace(hello(ok), "events.hello", "events.ping", 1), "", 1008},
		"version 2":              {strings.Replace(hello(ok), `"1"`, `"2"`, 1), "", 1008},
		"version as a number":    {strings.Replace(hello(ok), `"1"`, `1`, 1), "", 1008},
		"with a session":         {strings.Replace(hello(ok), `"body"`, `"session_id":"`+anID+`","body"`, 1), "", 1008},
		"with reply_to":          {strings.Replace(hello(ok), `"body"`, `"reply_to":"`+anID+`","body"`, 1), "", 1008},
		"with error":             {strings.Replace(hello(ok), `"body"`, `"error":{},"body"`, 1), "", 1008},
		"unknown member":         {strings.Replace(hello(ok), `"body"`, `"extra":1,"body"`, 1), "", 1008},
		"Type for type":          {strings.Replace(hello(ok), `"type"`, `"Type"`, 1), "", 1008},
		"type twice":             {strings.Replace(hello(ok), `"type"`, `"type":"events.hello","type"`, 1), "", 1008},
		"upper-case message_id":  {strings.Replace(hello(ok), anID, strings.ToUpper(anID), 1), "", 1008},
		"trailing data":          {hello(ok) + "{}", "", 1008},
		"no body":                {`{"protocol_version":"1","type":"events.hello","message_id":"` + anID + `"}`, "", 1008},
		"capacity 0":             {hello(strings.Replace(ok, ":1}", ":0}", 1)), "INVALID_ARGUMENT", 1008},
		"capacity 33":            {hello(strings.Replace(ok, ":1}", ":33}", 1)), "INVALID_ARGUMENT", 1008},
		"capacity 1.0":           {hello(strings.Replace(ok, ":1}", ":1.0}", 1)), "INVALID_ARGUMENT", 1008},
		"capacity as text":       {hello(strings.Replace(ok, ":1}", `:"1"}`, 1)), "INVALID_ARGUMENT", 1008},
		"no capacity":            {hello(fmt.Sprintf(`{"subscription_id":"%s"}`, sub)), "INVALID_ARGUMENT", 1008},
		"no subscription":        {hello(`{"capacity":1}`), "INVALID_ARGUMENT", 1008},
		"unknown member in body": {hello(strings.Replace(ok, "}", `,"token":"x"}`, 1)), "INVALID_ARGUMENT", 1008},
		"capacity twice":         {hello(strings.Replace(ok, "}", `,"capacity":2}`, 1)), "INVALID_ARGUMENT", 1008},
		"a missing subscription": {hello(fmt.Sprintf(`{"subscription_id":"%s","capacity":1}`, ids.New())), "NOT_FOUND", 4404},
		"another's subscription": {hello(fmt.Sprintf(`{"subscription_id":"%s","capacity":1}`, foreign)), "NOT_FOUND", 4404},
	} {
		t.Run(name, func(t *testing.T) {
			s := n.dial("/v1/events/connect", "orbit.events.v1", tenant.Token)
			if c.frame != "" {
				s.raw(c.frame)
			}
			if c.code != "" {
				f := s.expect("error")
				if f.Error.Code != c.code || f.ReplyTo != anID || f.SessionID != "" || f.Body != nil {
					t.Errorf("error frame %+v", f)
				}
			}
			s.expectClose(c.close)
		})
	}
	for _, capacity := range []int{1, 32} {
		n.events(tenant.Token, sub, capacity)
	}
}

func TestFrameFaults(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant, stranger := db.Tenant(t), db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	foreign := db.Subscribe(t, stranger, subscription.Create{})
	db.Outcome(t, stranger, `1`)
	n := startNode(t, db)
	theirs := n.events(stranger.Token, foreign, 1).delivery()
	proof := func(id, epoch, secret string) string {
		return fmt.Sprintf(`{"delivery_id":"%s","epoch":"%s","lease_secret":"%s"}`, id, epoch, secret)
	}
	for name, c := range map[string]struct {
		frameType string
		body      string
		code      string
		close     int // 0: the connection stays
	}{
		"unknown type":             {"event.nack", `{}`, "INVALID_ARGUMENT", 0},
		"a second hello":           {"events.hello", fmt.Sprintf(`{"subscription_id":"%s","capacity":1}`, sub), "INVALID_ARGUMENT", 0},
		"ping with a member":       {"events.ping", `{"a":1}`, "INVALID_ARGUMENT", 0},
		"ack of nothing":           {"event.ack", `{}`, "INVALID_ARGUMENT", 0},
		"epoch as a number":        {"event.ack", `{"delivery_id":"` + anID + `","epoch":1,"lease_secret":"` + zeroSecret + `"}`, "INVALID_ARGUMENT", 0},
		"epoch 01":                 {"event.ack", proof(anID, "01", zeroSecret), "INVALID_ARGUMENT", 0},
		"epoch 2^64":               {"event.ack", proof(anID, "18446744073709551616", zeroSecret), "INVALID_ARGUMENT", 0},
		"padded secret":            {"event.ack", proof(anID, "1", zeroSecret+"="), "INVALID_ARGUMENT", 0},
		"secret with stray bits":   {"event.ack", proof(anID, "1", zeroSecret[:42]+"B"), "INVALID_ARGUMENT", 0},
		"duplicate key in body":    {"event.ack", `{"delivery_id":"` + anID + `","delivery_id":"` + anID + `","epoch":"1","lease_secret":"` + zeroSecret + `"}`, "INVALID_ARGUMENT", 0},
		"release without delay":    {"event.release", strings.Replace(proof(anID, "1", zeroSecret), "}", `,"refund":true}`, 1), "INVALID_ARGUMENT", 0},
		"release with delay −1":    {"event.release", strings.Replace(proof(anID, "1", zeroSecret), "}", `,"refund":true,"delay_ms":-1}`, 1), "INVALID_ARGUMENT", 0},
		"release with 900001":      {"event.release", strings.Replace(proof(anID, "1", zeroSecret), "}", `,"refund":true,"delay_ms":900001}`, 1), "INVALID_ARGUMENT", 0},
		"no acks in a batch":       {"event.ack_batch", `{"acks":[]}`, "INVALID_ARGUMENT", 0},
		"33 acks in a batch":       {"event.ack_batch", `{"acks":[` + strings.TrimSuffix(strings.Repeat(proof(anID, "1", zeroSecret)+",", 33), ",") + `]}`, "INVALID_ARGUMENT", 0},
		"a delivery of nobody":     {"event.ack", proof(anID, "1", zeroSecret), "NOT_FOUND", 4404},
		"another's delivery":       {"event.ack", proof(theirs.Delivery.ID, "1", theirs.LeaseSecret), "NOT_FOUND", 4404},
		"32 acks of nobody":        {"event.ack_batch", `{"acks":[` + strings.TrimSuffix(strings.Repeat(proof(anID, "1", zeroSecret)+",", 32), ",") + `]}`, "NOT_FOUND", 4404},
		"extend of nobody":         {"event.extend", proof(anID, "1", zeroSecret), "NOT_FOUND", 4404},
		"release 900000 of nobody": {"event.release", strings.Replace(proof(anID, "1", zeroSecret), "}", `,"refund":false,"delay_ms":900000}`, 1), "NOT_FOUND", 4404},
	} {
		t.Run(name, func(t *testing.T) {
			s := n.events(tenant.Token, sub, 1)
			s.raw(`{"protocol_version":"1","type":"` + c.frameType + `","message_id":"` + anID + `","session_id":"` + s.session + `","body":` + c.body + `}`)
			f := s.expect("error")
			if f.Error.Code != c.code || f.ReplyTo != anID || f.SessionID != s.session || f.Body != nil {
				t.Errorf("error frame %+v", f)
			}
			if c.close != 0 {
				s.expectClose(c.close)
				return
			}
			s.send("events.ping", map[string]any{})
			s.expect("ack")
		})
	}
}

func TestEnvelopeFaultsClose(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	for name, frame := range map[string]string{
		"another session":    `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","session_id":"` + anID + `","body":{}}`,
		"no session":         `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","body":{}}`,
		"body null":          `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","session_id":"SESSION","body":null}`,
		"body an array":      `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","session_id":"SESSION","body":[]}`,
		"no message_id":      `{"protocol_version":"1","type":"events.ping","session_id":"SESSION","body":{}}`,
		"session twice":      `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","session_id":"SESSION","session_id":"SESSION","body":{}}`,
		"depth 10 001":       `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","session_id":"SESSION","body":` + strings.Repeat(`{"a":`, 10_001) + `1` + strings.Repeat("}", 10_002),
		"not UTF-8":          "{\"protocol_version\":\"1\",\"type\":\"\xff\"}",
		"nothing":            "",
		"a very long number": `{"protocol_version":` + strings.Repeat("1", 100_000) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := n.events(tenant.Token, sub, 1)
			s.raw(strings.ReplaceAll(frame, "SESSION", s.session))
			s.expectClose(1008)
		})
	}
	t.Run("binary", func(t *testing.T) {
		s := n.events(tenant.Token, sub, 1)
		if err := s.ws.WriteMessage(websocket.BinaryMessage, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		s.expectClose(1008)
	})
	for size, code := range map[int]int{524_287: 0, 524_288: 0, 524_289: 1009} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			s := n.events(tenant.Token, sub, 1)
			frame := `{"protocol_version":"1","type":"events.ping","message_id":"` + anID + `","session_id":"` + s.session + `","body":{}}`
			s.raw(frame + strings.Repeat(" ", size-len(frame)))
			if code == 0 {
				s.expect("ack")
				return
			}
			s.expectClose(code)
		})
	}
}

func TestSilentClientIsClosed(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db, func(c *config) { c.IdleTimeout = 200 * time.Millisecond })
	n.events(tenant.Token, sub, 1).expectClose(1008)
}
