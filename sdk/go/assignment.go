package orbit

import (
	"encoding/json"
	"time"
)

// Assignment is one attempt to execute a task, leased to this worker.
type Assignment struct {
	Task        AssignedTask
	Attempt     Attempt
	LeaseSecret Secret `json:"-"` // Proof marshals it

	received time.Time // by the local monotonic clock
}

// AssignedTask is the task as a worker sees it. Input is the submitter's JSON text byte for byte.
type AssignedTask struct {
	ID          string            `json:"id"`
	QueueID     string            `json:"queue_id"`
	Revision    Counter           `json:"revision"`
	Input       json.RawMessage   `json:"input"`
	RetrySafety RetrySafety       `json:"retry_safety"`
	Priority    int               `json:"priority"`
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"max_attempts"`
	Labels      map[string]string `json:"labels,omitempty"`
	RunAt       time.Time         `json:"run_at"`
	CreatedAt   time.Time         `json:"created_at"`
}

// Attempt is one leased execution.
type Attempt struct {
	ID         string    `json:"id"`
	TaskID     string    `json:"task_id"`
	Number     int       `json:"number"`
	Epoch      Counter   `json:"epoch"`
	LeaseUntil time.Time `json:"lease_until"`
	StartedAt  time.Time `json:"started_at"`
}

// Proof is the right to report this attempt's outcome.
func (a *Assignment) Proof() AttemptProof {
	return AttemptProof{AttemptID: a.Attempt.ID, Epoch: a.Attempt.Epoch, LeaseSecret: a.LeaseSecret}
}

// AttemptProof is the right to renew an attempt and to report its outcome, on any connection of the same
// credential. It marshals to JSON whole; formatting and logging hide the secret.
type AttemptProof struct {
	AttemptID   string  `json:"attempt_id"`
	Epoch       Counter `json:"epoch"`
	LeaseSecret Secret  `json:"lease_secret"`
}

func (p AttemptProof) lease() lease {
	return lease{id: p.AttemptID, epoch: p.Epoch, secret: p.LeaseSecret}
}

// decodeAssignment reads the body of task.assign.
func decodeAssignment(body json.RawMessage) (*Assignment, error) {
	var wire struct {
		Task        AssignedTask `json:"task"`
		Attempt     Attempt      `json:"attempt"`
		LeaseSecret Secret       `json:"lease_secret"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, err
	}
	return &Assignment{Task: wire.Task, Attempt: wire.Attempt, LeaseSecret: wire.LeaseSecret, received: time.Now()}, nil
}
