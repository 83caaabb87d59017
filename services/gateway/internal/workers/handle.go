package workers

import (
	"context"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Blocked stops reading while as many commands are under way as the worker can have attempts.
func (s *session) Blocked() bool { return int(s.underWay.Load()) >= max(s.capacity, 64) }

// Handle takes one frame. A malformed envelope or a wrong session closes; a bad command is answered.
func (s *session) Handle(data []byte) {
	frame, err := wire.Parse(data)
	if err == nil {
		err = frame.CheckSession(s.id)
	}
	if err != nil {
		s.conn.Close(wire.ClosePolicy, "policy: "+errs.MessageOf(err))
		return
	}
	switch frame.Type {
	case "attempt.complete":
		err = s.complete(&frame)
	case "attempt.fail":
		err = s.failed(&frame)
	case "attempt.cancelled":
		err = s.bare(&frame, task.OutcomeCancelled)
	case "attempt.release":
		err = s.bare(&frame, task.OutcomeRelease)
	case "attempts.renew":
		err = s.renew(&frame)
	case "worker.ping":
		err = s.ping(&frame)
	case "worker.drain":
		err = s.drain(&frame)
	default:
		err = errs.Invalid("type", "%s is not a command of this socket", wire.Shown(frame.Type))
	}
	if err != nil {
		s.fail(err, &frame.MessageID)
	}
}

func (s *session) fail(err error, replyTo *ids.ID) {
	s.conn.FailWith(s.server.Log, s.peer, err, replyTo, &s.id)
}

type proof struct {
	AttemptID   *ids.ID      `json:"attempt_id"`
	Epoch       *ids.Counter `json:"epoch"`
	LeaseSecret *ids.Secret  `json:"lease_secret"`
}

func (p *proof) validate() (task.Proof, error) {
	switch {
	case p.AttemptID == nil:
		return task.Proof{}, errs.Invalid("attempt_id", "is required")
	case p.Epoch == nil:
		return task.Proof{}, errs.Invalid("epoch", "is required")
	case p.LeaseSecret == nil:
		return task.Proof{}, errs.Invalid("lease_secret", "is required")
	}
	return task.Proof{AttemptID: *p.AttemptID, Epoch: *p.Epoch, Digest: p.LeaseSecret.Digest()}, nil
}

func (s *session) complete(frame *wire.Frame) error {
	var body struct {
		proof
		Result strictjson.Raw `json:"result"`
	}
	if err := frame.Decode(&body); err != nil {
		return err
	}
	if len(body.Result) > task.MaxJSON {
		return errs.Invalid("result", "must be at most %d bytes, has %d; fail the attempt as not retryable", task.MaxJSON, len(body.Result))
	}
	return s.report(frame, &body.proof, task.Outcome{Kind: task.OutcomeComplete, Result: body.Result})
}

// maxRetryAfter keeps a worker's own back-off within a day.
const maxRetryAfter = 24 * time.Hour

func (s *session) failed(frame *wire.Frame) error {
	var body struct {
		proof
		Error        *task.Failure `json:"error"`
		Retryable    *bool         `json:"retryable"`
		RetryAfterMS *int          `json:"retry_after_ms"`
	}
	if err := frame.Decode(&body); err != nil {
		return err
	}
	if body.Error == nil {
		return errs.Invalid("error", "is required: {code, message}")
	}
	if err := body.Error.Validate(); err != nil {
		return err
	}
	if body.Retryable == nil {
		return errs.Invalid("retryable", "is required")
	}
	outcome := task.Outcome{Kind: task.OutcomeFail, Failure: body.Error, Retryable: *body.Retryable}
	if ms := body.RetryAfterMS; ms != nil {
		if *ms < 0 || *ms > int(maxRetryAfter/time.Millisecond) {
			return errs.Invalid("retry_after_ms", "must be 0…%d, is %d", maxRetryAfter/time.Millisecond, *ms)
		}
		wait := time.Duration(*ms) * time.Millisecond
		outcome.RetryAfter = &wait
	}
	return s.report(frame, &body.proof, outcome)
}

// bare is an outcome that carries nothing but its proof.
func (s *session) bare(frame *wire.Frame, kind task.OutcomeKind) error {
	var body proof
	if err := frame.Decode(&body); err != nil {
		return err
	}
	return s.report(frame, &body, task.Outcome{Kind: kind})
}

func (s *session) report(frame *wire.Frame, body *proof, outcome task.Outcome) error {
	p, err := body.validate()
	if err != nil {
		return err
	}
	outcome.Proof = p
	replyTo := frame.MessageID
	s.underWay.Add(1)
	s.server.Outcomes.Add(s.queue, Report{Outcome: outcome, Reply: func(r store.OutcomeResult) {
		s.underWay.Add(-1)
		if r.Err == nil || errs.Is(r.Err, errs.AttemptLeaseLost) {
			s.server.Pool.Settled(s.place, p.AttemptID)
		}
		if r.Err != nil {
			s.fail(r.Err, &replyTo)
			return
		}
		s.conn.Send(s.decided(replyTo, p.AttemptID, r))
	}})
	return nil
}

func (s *session) decided(replyTo, attempt ids.ID, r store.OutcomeResult) []byte {
	b := wire.Open(make([]byte, 0, 448), "ack", &replyTo, &s.id)
	b = append(b, `{"attempt_id":`...)
	b = wire.AppendID(b, attempt)
	b = append(b, `,"task_id":`...)
	b = wire.AppendID(b, r.TaskID)
	b = append(b, `,"state":"`...)
	b = append(b, r.State...)
	b = append(b, `","revision":`...)
	b = wire.AppendCounter(b, r.Revision)
	b = append(b, `,"deduplicated":`...)
	b = wire.AppendBool(b, r.Deduplicated)
	return wire.Close(append(b, '}'))
}

const commandTimeout = 8 * time.Second

// renew runs beside the connection's other commands; one at a time is all a worker needs.
func (s *session) renew(frame *wire.Frame) error {
	var body struct {
		Attempts []proof `json:"attempts"`
	}
	if err := frame.Decode(&body); err != nil {
		return err
	}
	if n := len(body.Attempts); n < 1 || n > MaxCapacity {
		return errs.Invalid("attempts", "must have 1…%d items, has %d", MaxCapacity, n)
	}
	proofs := make([]task.Proof, len(body.Attempts))
	for i := range body.Attempts {
		p, err := body.Attempts[i].validate()
		if err != nil {
			return err
		}
		proofs[i] = p
	}
	replyTo := frame.MessageID
	s.beside(replyTo, func(ctx context.Context) ([]byte, error) {
		renewals, err := s.server.Store.RenewAttempts(ctx, s.queue.NamespaceID, s.queue.QueueID, proofs)
		if err != nil {
			return nil, err
		}
		b := wire.Open(make([]byte, 0, 512), "ack", &replyTo, &s.id)
		b = append(b, `{"attempts":[`...)
		for i, r := range renewals {
			if i > 0 {
				b = append(b, ',')
			}
			b = s.renewed(b, proofs[i].AttemptID, r)
		}
		return wire.Close(append(b, `]}`...)), nil
	})
	return nil
}

func (s *session) renewed(b []byte, attempt ids.ID, r store.Renewal) []byte {
	b = append(b, `{"attempt_id":`...)
	b = wire.AppendID(b, attempt)
	if r.Err != nil {
		s.server.Pool.Settled(s.place, attempt)
		b = append(b, `,"error":`...)
		return append(wire.AppendError(b, r.Err), '}')
	}
	s.server.Pool.Renewed(s.place, attempt, r.LeaseUntil)
	b = append(b, `,"lease_until":`...)
	b = wire.AppendTime(b, r.LeaseUntil)
	b = append(b, `,"cancel_requested":`...)
	b = wire.AppendBool(b, r.CancelRequested)
	return append(b, '}')
}

func (s *session) ping(frame *wire.Frame) error {
	if err := frame.Decode(&struct{}{}); err != nil {
		return err
	}
	replyTo := frame.MessageID
	s.beside(replyTo, func(ctx context.Context) ([]byte, error) {
		caller, err := s.server.Store.CallerOf(ctx, s.peer.Caller.CredentialID, s.peer.Digest)
		if err != nil {
			return nil, err
		}
		q, err := s.server.Store.GetQueue(ctx, caller, s.queue.QueueID)
		if err != nil {
			return nil, err
		}
		b := wire.Open(make([]byte, 0, 320), "ack", &replyTo, &s.id)
		b = append(b, `{"server_time":`...)
		b = wire.AppendTime(b, time.Now())
		b = append(b, `,"paused":`...)
		b = wire.AppendBool(b, q.Paused)
		return wire.Close(append(b, '}')), nil
	})
	return nil
}

// drain is answered after the last assignment of this connection; outcomes, renewals and cancels go on.
func (s *session) drain(frame *wire.Frame) error {
	if err := frame.Decode(&struct{}{}); err != nil {
		return err
	}
	replyTo := frame.MessageID
	s.underWay.Add(1)
	s.server.Pool.DrainPlace(s.place, func() {
		s.underWay.Add(-1)
		s.conn.Send(wire.Close(append(wire.Open(make([]byte, 0, 192), "ack", &replyTo, &s.id), `{"draining":true}`...)))
	})
	return nil
}

// beside answers a command without holding up the connection's other frames.
func (s *session) beside(replyTo ids.ID, answer func(ctx context.Context) ([]byte, error)) {
	s.underWay.Add(1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		b, err := answer(ctx)
		s.underWay.Add(-1)
		if err != nil {
			s.fail(err, &replyTo)
			return
		}
		s.conn.Send(b)
	}()
}
