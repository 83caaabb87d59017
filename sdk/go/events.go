package orbit

import (
	"encoding/json"
	"time"
)

// EventType is what happened to a task; a subscription's types are a subset of these (R5.1). A task may
// have several over time: needs_review is neither success nor failure.
type EventType = string

// The event types.
const (
	TaskSucceeded   EventType = "task.succeeded"
	TaskFailed      EventType = "task.failed"
	TaskCancelled   EventType = "task.cancelled"
	TaskNeedsReview EventType = "task.needs_review"
)

// ResultEvent is one immutable entry of the result log (R8.6). ID is what a receiver de-duplicates by.
type ResultEvent struct {
	ID                string          `json:"id"`
	Sequence          Counter         `json:"sequence"`
	Type              EventType       `json:"type"`
	AggregateKind     string          `json:"aggregate_kind"` // "task"
	AggregateID       string          `json:"aggregate_id"`
	AggregateRevision Counter         `json:"aggregate_revision"`
	OccurredAt        time.Time       `json:"occurred_at"`
	Details           json.RawMessage `json:"details"` // about the event itself; grows by type
	Snapshot          TaskSnapshot    `json:"snapshot"`
}

// TaskSnapshot is the task as the event left it. Result is the worker's JSON text byte for byte.
type TaskSnapshot struct {
	SchemaVersion    int             `json:"schema_version"`
	TaskID           string          `json:"task_id"`
	QueueID          string          `json:"queue_id"`
	State            TaskState       `json:"state"`
	Revision         Counter         `json:"revision"`
	EffectUncertain  bool            `json:"effect_uncertain"`
	Result           json.RawMessage `json:"result,omitempty"`
	CurrentAttemptID string          `json:"current_attempt_id,omitempty"`
}

// DeliveryState is the state of a delivery.
type DeliveryState = string

// The delivery states.
const (
	DeliveryPending DeliveryState = "PENDING"
	DeliveryLeased  DeliveryState = "LEASED"
	DeliveryAcked   DeliveryState = "ACKED"
	DeliveryExpired DeliveryState = "EXPIRED"
)

// EventDelivery is the record of one event for one subscription (R5.6). Its ID stays the same over all
// sends.
type EventDelivery struct {
	ID             string        `json:"id"`
	SubscriptionID string        `json:"subscription_id"`
	EventID        string        `json:"event_id"`
	Sequence       Counter       `json:"sequence"`
	Revision       Counter       `json:"revision"`
	State          DeliveryState `json:"state"`
	CreatedAt      time.Time     `json:"created_at"`
	AvailableAt    time.Time     `json:"available_at"`
	LeaseEpoch     Counter       `json:"lease_epoch"`
	LeaseUntil     *time.Time    `json:"lease_until,omitempty"` // only while LEASED
	Attempts       int           `json:"attempts"`
	AttemptBudget  int           `json:"attempt_budget"`
	AcknowledgedAt *time.Time    `json:"acknowledged_at,omitempty"` // only when ACKED
}

// Delivery is one event received under a lease. RawEvent is the event's JSON text byte for byte.
type Delivery struct {
	EventDelivery
	Event       ResultEvent
	RawEvent    json.RawMessage
	LeaseSecret Secret `json:"-"` // Proof marshals it

	received time.Time // by the local monotonic clock
}

// Proof is the right to acknowledge this delivery.
func (d *Delivery) Proof() Proof {
	return Proof{DeliveryID: d.ID, Epoch: d.LeaseEpoch, LeaseSecret: d.LeaseSecret}
}

// Proof is the right to acknowledge a delivery: on any connection of the subscription's owner, also after
// the lease ran out, until a newer epoch was issued (R6.5). It marshals to JSON whole, so it can be saved
// and reported by a later process; formatting and logging hide the secret.
type Proof struct {
	DeliveryID  string  `json:"delivery_id"`
	Epoch       Counter `json:"epoch"`
	LeaseSecret Secret  `json:"lease_secret"`
}

func (p Proof) lease() lease { return lease{id: p.DeliveryID, epoch: p.Epoch, secret: p.LeaseSecret} }

// decodeDelivery reads the body of event.deliver.
func decodeDelivery(body json.RawMessage) (*Delivery, error) {
	var wire struct {
		Delivery    EventDelivery   `json:"delivery"`
		Event       json.RawMessage `json:"event"`
		LeaseSecret Secret          `json:"lease_secret"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, err
	}
	d := &Delivery{EventDelivery: wire.Delivery, RawEvent: wire.Event, LeaseSecret: wire.LeaseSecret, received: time.Now()}
	return d, json.Unmarshal(wire.Event, &d.Event)
}
