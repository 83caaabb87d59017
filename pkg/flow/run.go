package flow

import (
	"fmt"
)

// State of a run.
type State string

// The states of R10.2. The last three are final; a retried step takes a run out of FAILED or CANCELLED.
const (
	Running       State = "RUNNING"
	Paused        State = "PAUSED"
	WaitingReview State = "WAITING_REVIEW"
	Succeeded     State = "SUCCEEDED"
	Failed        State = "FAILED"
	Cancelled     State = "CANCELLED"
)

// States lists all of them.
var States = []State{Running, Paused, WaitingReview, Succeeded, Failed, Cancelled}

// Final reports that nothing of the run goes on.
func (s State) Final() bool { return s == Succeeded || s == Failed || s == Cancelled }

// StepState is the state of a step's current try.
type StepState string

// The states. SUBMITTED is shown as RUNNING while a worker has the task.
const (
	StepWaiting     StepState = "WAITING"
	StepSubmitted   StepState = "SUBMITTED"
	StepRunning     StepState = "RUNNING" // only in answers
	StepSucceeded   StepState = "SUCCEEDED"
	StepFailed      StepState = "FAILED"
	StepCancelled   StepState = "CANCELLED"    // its task was
	StepNeedsReview StepState = "NEEDS_REVIEW" // its task does
	StepSkipped     StepState = "SKIPPED"      // never submitted: the run ended first
)

// live reports that the step has a task that is not finished.
func (s StepState) live() bool { return s == StepSubmitted || s == StepNeedsReview }

// Run is a run as the machine sees it.
type Run struct {
	State  State
	Ending State // "", or Failed or Cancelled of a run that is not final: nothing more is submitted, and it gets there once no task is live
	Steps  []Progress
}

// Progress is one step of a run. Try counts from 1.
type Progress struct {
	State StepState
	Try   int
}

// NewRun is a run in which nothing was submitted.
func NewRun(p *Plan) *Run {
	r := &Run{State: Running, Steps: make([]Progress, len(p.Steps))}
	for i := range r.Steps {
		r.Steps[i] = Progress{StepWaiting, 1}
	}
	return r
}

// Kind is what can happen to a run.
type Kind string

// The kinds. Task… are events of the result log; Submitted and Refused are what became of a ready step;
// the others are commands.
const (
	TaskSucceeded   Kind = "task succeeded"
	TaskFailed      Kind = "task failed"
	TaskCancelled   Kind = "task cancelled"
	TaskNeedsReview Kind = "task needs review"
	TaskRequeued    Kind = "task requeued"
	Submitted       Kind = "submitted"
	Refused         Kind = "refused" // its input could not be made
	Pause           Kind = "pause"
	Resume          Kind = "resume"
	Cancel          Kind = "cancel"
	Retry           Kind = "retry"
)

// Event is one happening. Step is for all but Pause, Resume and Cancel, Try for the Task… kinds.
type Event struct {
	Kind Kind
	Step int
	Try  int
}

// Effects are the tasks to cancel, by step, in the transaction that stores the run. What is to be
// submitted is Plan.Ready.
type Effects struct {
	Cancel       []int // whatever their task's state
	CancelQueued []int // only if no worker has the task
}

// Apply moves the run. An event of an earlier try, or that says what is known already, changes
// nothing; a command that the state does not allow is an error that names the state.
//
//	          ┌──────── pause ────────▶ PAUSED ──┐ what runs goes on, nothing is submitted
//	          │  ┌───── resume ───────────┘      │
//	start ─▶ RUNNING ◀── resolved ── WAITING_REVIEW (a task needs review; other branches go on)
//	          │   └──── needs review ────▶ │
//	          ├─ every step SUCCEEDED ─────┴──────────────────────────────▶ SUCCEEDED
//	          ├─ a step FAILED: ending FAILED ──────── no task is live ────▶ FAILED ───┐
//	          ├─ cancel, or a task was cancelled:                                      ├─ retry ─▶ RUNNING
//	          │  ending CANCELLED ──────────────────── no task is live ────▶ CANCELLED ┘
//
//	step: WAITING ─ submitted ─▶ SUBMITTED ─┬─▶ SUCCEEDED
//	         │  └─── refused ───────────────┼─▶ FAILED ────┐
//	         │                              ├─▶ CANCELLED ─┼─ retry ─▶ WAITING, next try
//	         └─ the run ends ─▶ SKIPPED     └─▶ NEEDS_REVIEW ─ resolved ─▶ one of these, or SUBMITTED
//
// While a run is ending it stays RUNNING or WAITING_REVIEW with Ending set. A failure cancels what no
// worker has begun and lets the rest finish, so that a retry need not repeat it; a cancel asks the
// workers too. A run whose steps all succeeded has succeeded, however late a cancel came.
func (p *Plan) Apply(r *Run, e Event) (Effects, error) {
	var fx Effects
	switch e.Kind {
	case TaskSucceeded, TaskFailed, TaskCancelled, TaskNeedsReview, TaskRequeued:
		if s := r.Steps[e.Step]; s.Try != e.Try || !s.State.live() {
			return fx, nil
		}
		fx = p.applyTask(r, e)
	case Submitted:
		r.Steps[e.Step].State = StepSubmitted
	case Refused:
		r.Steps[e.Step].State = StepFailed
		fx = r.end(Failed)
	case Pause:
		if r.State != Running && r.State != WaitingReview || r.Ending != "" {
			return fx, r.refuse("pause")
		}
		r.State = Paused
	case Resume:
		if r.State != Paused {
			return fx, r.refuse("resume")
		}
		r.State = Running
	case Cancel:
		if r.State.Final() || r.Ending == Cancelled {
			return fx, r.refuse("cancel")
		}
		fx = r.end(Cancelled)
	case Retry:
		if err := p.retry(r, e.Step); err != nil {
			return fx, err
		}
	}
	p.settle(r)
	return fx, nil
}

var reached = map[Kind]StepState{
	TaskSucceeded: StepSucceeded, TaskFailed: StepFailed, TaskCancelled: StepCancelled, TaskNeedsReview: StepNeedsReview, TaskRequeued: StepSubmitted,
}

func (p *Plan) applyTask(r *Run, e Event) Effects {
	r.Steps[e.Step].State = reached[e.Kind]
	switch {
	case e.Kind == TaskFailed && r.Ending == "":
		return r.end(Failed)
	case e.Kind == TaskCancelled && r.Ending == "":
		return r.end(Cancelled)
	case e.Kind == TaskRequeued && r.Ending != "":
		return Effects{CancelQueued: []int{e.Step}}
	}
	return Effects{}
}

// end lets nothing more begin.
func (r *Run) end(as State) Effects {
	r.Ending = as
	if r.State == Paused {
		r.State = Running
	}
	var live []int
	for i := range r.Steps {
		switch s := &r.Steps[i]; s.State {
		case StepWaiting:
			s.State = StepSkipped
		case StepSubmitted:
			live = append(live, i)
		}
	}
	if as == Cancelled {
		return Effects{Cancel: live}
	}
	return Effects{CancelQueued: live}
}

// retry gives a failed or cancelled step another try, and with it all that was cancelled or skipped.
// Steps that succeeded keep their results; other failed steps stay failed and can be retried too.
func (p *Plan) retry(r *Run, step int) error {
	s := r.Steps[step].State
	switch {
	case s != StepFailed && s != StepCancelled:
		return fmt.Errorf("step %q is %s; only a FAILED or CANCELLED step can be retried", p.Steps[step].Name, s)
	case r.Ending != "" && !r.State.Final():
		return fmt.Errorf("the run is %s and ends as %s once its running tasks are done; retry then", r.State, r.Ending)
	case r.State == Paused:
		return fmt.Errorf("the run is PAUSED; resume it first")
	}
	r.State, r.Ending = Running, ""
	for i := range r.Steps {
		switch t := &r.Steps[i]; {
		case i == step || t.State == StepCancelled:
			*t = Progress{StepWaiting, t.Try + 1}
		case t.State == StepSkipped:
			t.State = StepWaiting
		}
	}
	return nil
}

func (r *Run) refuse(command string) error {
	if r.Ending != "" && !r.State.Final() {
		return fmt.Errorf("the run is %s and ends as %s; %s is not possible", r.State, r.Ending, command)
	}
	return fmt.Errorf("the run is %s; %s is not possible", r.State, command)
}

// settle derives the run's state from its steps.
func (p *Plan) settle(r *Run) {
	live, review, left := false, false, false
	for _, s := range r.Steps {
		live = live || s.State.live()
		review = review || s.State == StepNeedsReview
		left = left || s.State != StepSucceeded
	}
	if r.Ending == "" && left && !live && len(p.startable(r)) == 0 {
		r.end(Failed) // after a retry, another step is still failed
	}
	switch {
	case !left:
		r.State, r.Ending = Succeeded, ""
	case r.Ending != "" && !live:
		r.State, r.Ending = r.Ending, ""
	case r.State == Paused:
	case review:
		r.State = WaitingReview
	default:
		r.State = Running
	}
}

// Ready lists the steps to submit now.
func (p *Plan) Ready(r *Run) []int {
	if r.State != Running && r.State != WaitingReview || r.Ending != "" {
		return nil
	}
	return p.startable(r)
}

// startable lists the waiting steps whose dependencies have all succeeded.
func (p *Plan) startable(r *Run) []int {
	var out []int
	for i, s := range r.Steps {
		if s.State == StepWaiting && p.met(r, i) {
			out = append(out, i)
		}
	}
	return out
}

func (p *Plan) met(r *Run, step int) bool {
	for _, need := range p.needs[step] {
		if r.Steps[need].State != StepSucceeded {
			return false
		}
	}
	return true
}
