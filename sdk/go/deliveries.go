package orbit

import (
	"context"
	"encoding/json"
	"iter"
)

// EventDeliveryDetail is a delivery with its event. RawEvent is the event's JSON text byte for byte.
type EventDeliveryDetail struct {
	Delivery EventDelivery   `json:"delivery"`
	Event    ResultEvent     `json:"event"`
	RawEvent json.RawMessage `json:"-"`
}

// UnmarshalJSON reads {delivery, event}.
func (d *EventDeliveryDetail) UnmarshalJSON(text []byte) error {
	var wire struct {
		Delivery EventDelivery   `json:"delivery"`
		Event    json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return err
	}
	d.Delivery, d.RawEvent = wire.Delivery, wire.Event
	return json.Unmarshal(wire.Event, &d.Event)
}

// EventDeliveryResult answers a retry.
type EventDeliveryResult struct {
	Delivery     EventDelivery `json:"delivery"`
	Deduplicated bool          `json:"deduplicated"`
}

// ListEventDeliveriesRequest selects deliveries of one subscription.
type ListEventDeliveriesRequest struct {
	State  DeliveryState // "": all
	Limit  int           // 1–100 (0: 20)
	Cursor string
}

// RetryEventDeliveryRequest gives an EXPIRED delivery more attempts (R5.7).
type RetryEventDeliveryRequest struct {
	ExpectedRevision   Counter `json:"expected_revision"`
	Reason             string  `json:"reason"`              // 1–1024 characters
	AdditionalAttempts int     `json:"additional_attempts"` // 1–100
}

// ListEventDeliveries reads one page, newest first. It is for operators: states move while pages are
// read, and what is not yet materialised is not there (R5.6).
func (c *Client) ListEventDeliveries(ctx context.Context, subscriptionID string, r ListEventDeliveriesRequest) (*Page[EventDelivery], error) {
	q := ListOptions{Limit: r.Limit, Cursor: r.Cursor}.query()
	set(q, "state", r.State)
	out := new(Page[EventDelivery])
	return result(out, c.one(ctx, "subscriptions", subscriptionID, "/deliveries", q, out))
}

// AllEventDeliveries reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllEventDeliveries(ctx context.Context, subscriptionID string, r ListEventDeliveriesRequest) iter.Seq2[EventDelivery, error] {
	start := ListOptions{Limit: r.Limit, Cursor: r.Cursor}
	return all(ctx, start, func(ctx context.Context, o ListOptions) (*Page[EventDelivery], error) {
		r.Limit, r.Cursor = o.Limit, o.Cursor
		return c.ListEventDeliveries(ctx, subscriptionID, r)
	})
}

// GetEventDelivery reads a delivery with its event; no lease secret leaves the server.
func (c *Client) GetEventDelivery(ctx context.Context, subscriptionID, deliveryID string) (*EventDeliveryDetail, error) {
	out := new(EventDeliveryDetail)
	if !isID(deliveryID) {
		return nil, invalid("delivery id: must be 32 lowercase hex characters")
	}
	return result(out, c.one(ctx, "subscriptions", subscriptionID, "/deliveries/"+deliveryID, nil, out))
}

// RetryEventDelivery makes an EXPIRED delivery PENDING again with a larger budget; a connected consumer
// receives it within a second. ErrStateConflict: it is not EXPIRED, or its revision moved on.
func (c *Client) RetryEventDelivery(ctx context.Context, subscriptionID, deliveryID, key string, r RetryEventDeliveryRequest) (*EventDeliveryResult, error) {
	if !isID(deliveryID) {
		return nil, invalid("delivery id: must be 32 lowercase hex characters")
	}
	out := new(EventDeliveryResult)
	return result(out, c.command(ctx, "subscriptions", subscriptionID, "/deliveries/"+deliveryID+":retry", key, plain(r), out))
}
