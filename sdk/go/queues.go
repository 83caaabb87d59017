package orbit

import (
	"context"
	"iter"
	"time"
)

// Queue is where tasks wait (§8).
type Queue struct {
	ID              string     `json:"id"`
	Name            string     `json:"name"`
	Revision        Counter    `json:"revision"`
	Paused          bool       `json:"paused"`
	MaxRunning      int        `json:"max_running"` // 0: no limit
	LeaseDurationMS int64      `json:"lease_duration_ms"`
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
	RetiredAt       *time.Time `json:"retired_at,omitempty"`
}

// QueueResult answers a command: the queue as the first execution of the key left it.
type QueueResult struct {
	Queue        Queue `json:"queue"`
	Deduplicated bool  `json:"deduplicated"`
}

// CreateQueueRequest names a queue; Name is unique in the namespace for ever (R1.6).
type CreateQueueRequest struct {
	Name            string `json:"name"`
	MaxRunning      int    `json:"max_running,omitempty"`       // 0: no limit
	LeaseDurationMS int64  `json:"lease_duration_ms,omitempty"` // 5000–3600000 (0: the server's default)
}

// ConfigureQueueRequest changes what is not nil (R8.1). Pausing stops new attempts, not submits.
type ConfigureQueueRequest struct {
	ExpectedRevision Counter `json:"expected_revision"`
	Reason           string  `json:"reason"` // 1–1024 characters
	Paused           *bool   `json:"paused,omitempty"`
	MaxRunning       *int    `json:"max_running,omitempty"`
	LeaseDurationMS  *int64  `json:"lease_duration_ms,omitempty"`
}

// RetireResourceRequest ends a queue or subscription for ever (§7).
type RetireResourceRequest struct {
	ExpectedRevision Counter `json:"expected_revision"`
	Reason           string  `json:"reason"` // 1–1024 characters
}

// CreateQueue creates a queue; it joins the credential's scope. ErrStateConflict: the name was used.
func (c *Client) CreateQueue(ctx context.Context, key string, r CreateQueueRequest) (*QueueResult, error) {
	out := new(QueueResult)
	return result(out, c.post(ctx, "/v1/queues", key, plain(r), out))
}

// GetQueue reads a queue's present state.
func (c *Client) GetQueue(ctx context.Context, id string) (*Queue, error) {
	out := new(Queue)
	return result(out, c.one(ctx, "queues", id, "", nil, out))
}

// ListQueues reads one page of the queues in the credential's scope.
func (c *Client) ListQueues(ctx context.Context, o ListOptions) (*Page[Queue], error) {
	out := new(Page[Queue])
	return result(out, c.get(ctx, "/v1/queues", o.query(), out))
}

// AllQueues reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllQueues(ctx context.Context) iter.Seq2[Queue, error] {
	return all(ctx, ListOptions{Limit: 100}, c.ListQueues)
}

// ConfigureQueue pauses, resumes or changes limits. ErrStateConflict: the revision moved on.
func (c *Client) ConfigureQueue(ctx context.Context, id, key string, r ConfigureQueueRequest) (*QueueResult, error) {
	out := new(QueueResult)
	return result(out, c.command(ctx, "queues", id, ":configure", key, plain(r), out))
}

// RetireQueue ends a queue for ever (R7.2). ErrResourceBusy names what is in the way; nothing changed.
func (c *Client) RetireQueue(ctx context.Context, id, key string, r RetireResourceRequest) (*QueueResult, error) {
	out := new(QueueResult)
	return result(out, c.command(ctx, "queues", id, ":retire", key, plain(r), out))
}

// result returns out, or nil with the error; out was filled while err was computed.
func result[T any](out *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return out, nil
}
