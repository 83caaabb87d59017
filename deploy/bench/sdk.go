package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// sdkAgainstRaw drains the same log through subscriptions of its own, in turn by a client that does no more
// than the protocol needs and by orbit.Consumer: one connection of capacity 32 each.
func sdkAgainstRaw(ctx context.Context, s *stack, scale int) ([]metric, error) {
	const rounds = 3
	q, first, err := s.queue(ctx, 1000)
	if err != nil {
		return nil, err
	}
	subs := []string{first}
	for len(subs) < 2*rounds {
		made, err := s.client.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: "s-" + orbit.NewID(), QueueID: q, MaxPending: 1000})
		if err != nil {
			return nil, err
		}
		subs = append(subs, made.Subscription.ID)
	}
	n := scaled(10_000, scale)
	if err := s.submit(ctx, q, n, 4); err != nil {
		return nil, err
	}
	if err := s.work(ctx, q, 4, 128, n); err != nil {
		return nil, err
	}
	var raw, sdk time.Duration
	for i := range rounds {
		began := time.Now()
		if err := s.consumeRaw(ctx, subs[2*i], n); err != nil {
			return nil, err
		}
		raw += time.Since(began)
		began = time.Now()
		if err := s.consume(ctx, subs[2*i+1], 1, n, nil); err != nil {
			return nil, err
		}
		sdk += time.Since(began)
	}
	return []metric{
		perSecond("raw client", rounds*n, raw), perSecond("orbit.Consumer", rounds*n, sdk), {"SDK to raw", raw.Seconds() / sdk.Seconds(), ""},
	}, nil
}

// consumeRaw receives and acknowledges n events with nothing between the frames and the socket.
func (s *stack) consumeRaw(ctx context.Context, subscription string, n int) error {
	header := http.Header{"Authorization": {"Bearer " + s.token}}
	dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}}
	ws, answer, err := dialer.DialContext(ctx, strings.Replace(s.gateway, "http", "ws", 1)+"/v1/events/connect", header)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer ws.Close()
	_ = answer.Body.Close() // an upgrade has none
	hello := fmt.Sprintf(`{"protocol_version":"1","type":"events.hello","message_id":%q,"body":{"subscription_id":%q,"capacity":32}}`, messageID(), subscription)
	if err := ws.WriteMessage(websocket.TextMessage, []byte(hello)); err != nil {
		return err
	}
	_ = ws.SetReadDeadline(time.Now().Add(stallLimit))
	session := ""
	for acked := 0; acked < n; {
		_, text, err := ws.ReadMessage()
		if err != nil {
			return fmt.Errorf("after %d of %d: %w", acked, n, err)
		}
		var f struct {
			Type      string `json:"type"`
			SessionID string `json:"session_id"`
			Body      struct {
				Delivery struct {
					ID         string `json:"id"`
					LeaseEpoch string `json:"lease_epoch"`
				} `json:"delivery"`
				Event       json.RawMessage `json:"event"`
				LeaseSecret string          `json:"lease_secret"`
			} `json:"body"`
		}
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
		switch f.Type {
		case "events.welcome":
			session = f.SessionID
		case "ack":
			acked++
		case "event.deliver":
			var event orbit.ResultEvent // a receiver reads what it received
			if err := json.Unmarshal(f.Body.Event, &event); err != nil {
				return err
			}
			ack := fmt.Sprintf(`{"protocol_version":"1","type":"event.ack","message_id":%q,"session_id":%q,"body":{"delivery_id":%q,"epoch":%q,"lease_secret":%q}}`,
				messageID(), session, f.Body.Delivery.ID, f.Body.Delivery.LeaseEpoch, f.Body.LeaseSecret)
			if err := ws.WriteMessage(websocket.TextMessage, []byte(ack)); err != nil {
				return err
			}
		default:
			return errors.New(string(text))
		}
	}
	return nil
}

func messageID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
