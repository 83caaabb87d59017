package workers

import (
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// assign sends a committed claim.
func (s *session) assign(a store.Assignment) {
	head, err := json.Marshal(assignedTask{
		ID: a.Task.ID, QueueID: a.Task.QueueID, Revision: a.Task.Revision, RetrySafety: a.Task.RetrySafety, Priority: a.Task.Priority,
		Attempts: a.Task.Attempts, MaxAttempts: a.Task.MaxAttempts, RunAt: a.Task.RunAt, CreatedAt: a.Task.CreatedAt,
	})
	if err != nil {
		s.server.Log.Error("assignment not encoded; its lease runs out", zap.Stringer("task_id", a.Task.ID), zap.Error(err))
		return
	}
	attempt, err := json.Marshal(a.Attempt)
	if err != nil {
		s.server.Log.Error("assignment not encoded; its lease runs out", zap.Stringer("task_id", a.Task.ID), zap.Error(err))
		return
	}
	b := wire.Open(make([]byte, 0, 1024+len(a.Task.Input)), "task.assign", nil, &s.id)
	b = append(b, `{"task":`...)
	b = append(b, head[:len(head)-1]...)
	if a.Task.Labels != nil {
		b = append(append(b, `,"labels":`...), a.Task.Labels...)
	}
	b = append(append(b, `,"input":`...), a.Task.Input...)
	b = append(append(b, `},"attempt":`...), attempt...)
	b = append(b, `,"lease_secret":"`...)
	b = append(b, a.Secret.Text()...)
	s.conn.Send(wire.Close(append(b, `"}`...)))
}

// assignedTask is what a worker needs of a task; its labels and input are spliced in byte for byte.
type assignedTask struct {
	ID          ids.ID           `json:"id"`
	QueueID     ids.ID           `json:"queue_id"`
	Revision    ids.Counter      `json:"revision"`
	RetrySafety task.RetrySafety `json:"retry_safety"`
	Priority    int              `json:"priority"`
	Attempts    int              `json:"attempts"`
	MaxAttempts int              `json:"max_attempts"`
	RunAt       time.Time        `json:"run_at"`
	CreatedAt   time.Time        `json:"created_at"`
}
