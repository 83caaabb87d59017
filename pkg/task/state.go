package task

import (
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
)

// State of a task.
type State string

// The states of R8.3.
const (
	Queued      State = "QUEUED"
	Running     State = "RUNNING"
	Succeeded   State = "SUCCEEDED"
	Failed      State = "FAILED"
	Cancelled   State = "CANCELLED"
	NeedsReview State = "NEEDS_REVIEW"
)

// States lists all of them.
var States = []State{Queued, Running, Succeeded, Failed, Cancelled, NeedsReview}

// Final reports whether the state ends the task for good.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Command is what can happen to a task.
type Command string

// The commands. Lose… are a lapsed lease, decided by LoseCommand.
const (
	Claim            Command = "claim"
	Complete         Command = "complete"
	FailRetryable    Command = "fail, retried"
	FailFinal        Command = "fail"
	ConfirmCancel    Command = "cancelled by worker"
	Release          Command = "release"
	LoseRequeue      Command = "lost, requeued"
	LoseFail         Command = "lost, failed"
	LoseUncertain    Command = "lost, uncertain"
	LoseCancel       Command = "lost, cancelled"
	CancelQueued     Command = "cancel"
	CancelRunning    Command = "request cancel"
	ResolveSucceeded Command = "resolve succeeded"
	ResolveFailed    Command = "resolve failed"
	ResolveRequeue   Command = "resolve requeue"
)

// Commands lists all of them.
var Commands = []Command{
	Claim, Complete, FailRetryable, FailFinal, ConfirmCancel, Release, LoseRequeue, LoseFail, LoseUncertain,
	LoseCancel, CancelQueued, CancelRunning, ResolveSucceeded, ResolveFailed, ResolveRequeue,
}

// Move is where a command leads and the event that it appends ("" for none).
type Move struct {
	To    State
	Event result.Type
}

// moves is the whole state machine:
//
//	                 ┌── retry, release, lost+safe ──┐
//	                 ▼                               │
//	submit ──▶  QUEUED ────────── claim ─────────▶ RUNNING ──┬─ complete ──▶ SUCCEEDED
//	             │  ▲ │                              │       ├─ fail ──────▶ FAILED
//	             │  │ └─ late outcome of the last ───┼───────┤
//	             │  │    attempt, not re-leased      │       └─ cancelled ─▶ CANCELLED
//	             │  │                                └─ lost+unsafe ─▶ NEEDS_REVIEW
//	             │  └─────────── resolve requeue ──────────────────────────┘ │
//	             └─ cancel ─▶ CANCELLED            resolve ─▶ SUCCEEDED | FAILED
var moves = map[State]map[Command]Move{
	Queued: {
		Claim:        {Running, ""},
		CancelQueued: {Cancelled, result.TaskCancelled},
		// A lease that lapsed is honoured late, as long as no newer attempt was issued.
		Complete:  {Succeeded, result.TaskSucceeded},
		FailFinal: {Failed, result.TaskFailed},
	},
	Running: {
		Complete:      {Succeeded, result.TaskSucceeded},
		FailRetryable: {Queued, result.TaskRequeued},
		FailFinal:     {Failed, result.TaskFailed},
		ConfirmCancel: {Cancelled, result.TaskCancelled},
		Release:       {Queued, ""},
		LoseRequeue:   {Queued, result.TaskRequeued},
		LoseFail:      {Failed, result.TaskFailed},
		LoseUncertain: {NeedsReview, result.TaskNeedsReview},
		LoseCancel:    {Cancelled, result.TaskCancelled},
		CancelRunning: {Running, ""},
	},
	NeedsReview: {
		ResolveSucceeded: {Succeeded, result.TaskSucceeded},
		ResolveFailed:    {Failed, result.TaskFailed},
		ResolveRequeue:   {Queued, result.TaskRequeued},
	},
}

// Next returns the move of a command from a state, and whether it is allowed.
func Next(from State, c Command) (Move, bool) {
	m, ok := moves[from][c]
	return m, ok
}

// LoseCommand decides a lapsed lease (R8.4, R8.5).
func LoseCommand(safety RetrySafety, attempts, maxAttempts int, cancelRequested bool) Command {
	switch {
	case safety != Safe:
		return LoseUncertain
	case cancelRequested:
		return LoseCancel
	case attempts < maxAttempts:
		return LoseRequeue
	}
	return LoseFail
}

// FailCommand decides a worker's explicit failure (R8.4).
func FailCommand(retryable bool, attempts, maxAttempts int, cancelRequested bool) Command {
	if retryable && attempts < maxAttempts && !cancelRequested {
		return FailRetryable
	}
	return FailFinal
}
