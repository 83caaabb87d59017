package orbit

import (
	"context"
	"iter"
	"time"
)

// Subscription is a durable reader of one queue's events (R5.2). CursorSequence says how far the log was
// turned into deliveries; it is no acknowledgement mark.
type Subscription struct {
	ID              string      `json:"id"`
	QueueID         string      `json:"queue_id"`
	CredentialID    string      `json:"credential_id"`
	Name            string      `json:"name"`
	Revision        Counter     `json:"revision"`
	Enabled         bool        `json:"enabled"`
	Types           []EventType `json:"types"`
	CursorSequence  Counter     `json:"cursor_sequence"`
	PendingCount    int         `json:"pending_count"`
	MaxPending      int         `json:"max_pending"`
	MaxAttempts     int         `json:"max_attempts"`
	CreatedAt       time.Time   `json:"created_at"`
	UpdatedAt       time.Time   `json:"updated_at"`
	RetiredAt       *time.Time  `json:"retired_at,omitempty"`
	RetiredSequence Counter     `json:"retired_sequence,omitempty"`
}

// SubscriptionResult answers a command: the subscription as the first execution of the key left it.
type SubscriptionResult struct {
	Subscription Subscription `json:"subscription"`
	Deduplicated bool         `json:"deduplicated"`
}

// CreateSubscriptionRequest binds a subscription to the calling credential and one queue (R5.1).
type CreateSubscriptionRequest struct {
	Name         string      `json:"name"` // unique in the namespace for ever
	QueueID      string      `json:"queue_id"`
	Types        []EventType `json:"types,omitempty"`         // empty: all four
	FromSequence Counter     `json:"from_sequence,omitempty"` // "": after the present head; "0": all the log holds
	MaxPending   int         `json:"max_pending,omitempty"`   // 1–1000 (0: 100)
	MaxAttempts  int         `json:"max_attempts,omitempty"`  // 1–100 (0: 20)
}

// ConfigureSubscriptionRequest pauses or resumes (R5.5); all three are required.
type ConfigureSubscriptionRequest struct {
	ExpectedRevision Counter `json:"expected_revision"`
	Enabled          bool    `json:"enabled"`
	Reason           string  `json:"reason"` // 1–1024 characters
}

// CreateSubscription creates a subscription. Until an answer came, keep key and request, and repeat both:
// a new key would start at a later head. ErrSubscriptionLimit: 64 are live.
func (c *Client) CreateSubscription(ctx context.Context, key string, r CreateSubscriptionRequest) (*SubscriptionResult, error) {
	out := new(SubscriptionResult)
	return result(out, c.post(ctx, "/v1/subscriptions", key, plain(r), out))
}

// GetSubscription reads a subscription's present configuration and use.
func (c *Client) GetSubscription(ctx context.Context, id string) (*Subscription, error) {
	out := new(Subscription)
	return result(out, c.one(ctx, "subscriptions", id, "", nil, out))
}

// ListSubscriptionsRequest selects this credential's subscriptions of one queue.
type ListSubscriptionsRequest struct {
	QueueID string // required
	Limit   int    // 1–100 (0: 20)
	Cursor  string
}

// ListSubscriptions reads one page, newest first (R5.4).
func (c *Client) ListSubscriptions(ctx context.Context, r ListSubscriptionsRequest) (*Page[Subscription], error) {
	q := ListOptions{Limit: r.Limit, Cursor: r.Cursor}.query()
	set(q, "queue_id", r.QueueID)
	out := new(Page[Subscription])
	return result(out, c.get(ctx, "/v1/subscriptions", q, out))
}

// AllSubscriptions reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllSubscriptions(ctx context.Context, r ListSubscriptionsRequest) iter.Seq2[Subscription, error] {
	start := ListOptions{Limit: r.Limit, Cursor: r.Cursor}
	return all(ctx, start, func(ctx context.Context, o ListOptions) (*Page[Subscription], error) {
		r.Limit, r.Cursor = o.Limit, o.Cursor
		return c.ListSubscriptions(ctx, r)
	})
}

// ConfigureSubscription pauses or resumes. A paused subscription materialises and sends nothing new and
// still takes acknowledgements.
func (c *Client) ConfigureSubscription(ctx context.Context, id, key string, r ConfigureSubscriptionRequest) (*SubscriptionResult, error) {
	out := new(SubscriptionResult)
	return result(out, c.command(ctx, "subscriptions", id, ":configure", key, plain(r), out))
}

// RetireSubscription ends a subscription for ever (R7.1). ErrResourceBusy: something is not yet
// acknowledged or delivered; nothing changed.
func (c *Client) RetireSubscription(ctx context.Context, id, key string, r RetireResourceRequest) (*SubscriptionResult, error) {
	out := new(SubscriptionResult)
	return result(out, c.command(ctx, "subscriptions", id, ":retire", key, plain(r), out))
}
