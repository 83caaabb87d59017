package task

import (
	"strconv"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// Snapshot is the part of a result event that says how the task stood (R8.6): no input, no secret.
type Snapshot struct {
	TaskID           ids.ID
	QueueID          ids.ID
	State            State
	Revision         ids.Counter
	EffectUncertain  bool
	Result           strictjson.Raw
	CurrentAttemptID ids.ID
}

// JSON is the immutable text of the snapshot; the result is spliced in byte for byte.
func (s Snapshot) JSON() []byte {
	b := make([]byte, 0, 256+len(s.Result))
	b = append(b, `{"schema_version":1,"task_id":"`...)
	b = append(b, s.TaskID.String()...)
	b = append(b, `","queue_id":"`...)
	b = append(b, s.QueueID.String()...)
	b = append(b, `","state":"`...)
	b = append(b, s.State...)
	b = append(b, `","revision":"`...)
	b = append(b, s.Revision.String()...)
	b = append(b, `","effect_uncertain":`...)
	b = strconv.AppendBool(b, s.EffectUncertain)
	if s.Result != nil {
		b = append(append(b, `,"result":`...), s.Result...)
	}
	if !s.CurrentAttemptID.IsZero() {
		b = append(b, `,"current_attempt_id":"`...)
		b = append(b, s.CurrentAttemptID.String()...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// Details is the meta information of an event: the state reached and why.
type Details struct {
	State  State    `json:"state"`
	Reason string   `json:"reason,omitempty"`
	Error  *Failure `json:"error,omitzero"`
}

// Reasons in details.
const (
	ReasonCancelRequested = "CANCEL_REQUESTED"
	ReasonCompleted       = "COMPLETED"
	ReasonAttemptFailed   = "ATTEMPT_FAILED"
	ReasonLeaseLost       = "LEASE_LOST"
	ReasonResolved        = "RESOLVED"
)
