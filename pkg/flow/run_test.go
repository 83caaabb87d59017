package flow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func planOf(t testing.TB, steps ...Step) *Plan {
	t.Helper()
	d := Definition{Steps: steps}
	p, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// abc is A → B → C with X beside them.
func abc(t *testing.T) *Plan {
	return planOf(t, step("a", `1`), step("b", `1`, "a"), step("c", `1`, "b"), step("x", `1`))
}

// play applies events written as "kind step", submitting what is ready after each, and returns the run
// as text and all effects.
func play(t *testing.T, p *Plan, script ...string) (r *Run, effects []string) {
	t.Helper()
	r = NewRun(p)
	submit := func() {
		for _, i := range p.Ready(r) {
			if _, err := p.Apply(r, Event{Kind: Submitted, Step: i}); err != nil {
				t.Fatal(err)
			}
		}
	}
	submit()
	for _, line := range script {
		kind, name, _ := strings.Cut(line, ":")
		e := Event{Kind: Kind(kind)}
		if name != "" {
			e.Step = p.Index(name)
			e.Try = r.Steps[e.Step].Try
		}
		fx, err := p.Apply(r, e)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, i := range fx.Cancel {
			effects = append(effects, "cancel "+p.Steps[i].Name)
		}
		for _, i := range fx.CancelQueued {
			effects = append(effects, "unqueue "+p.Steps[i].Name)
		}
		submit()
	}
	return r, effects
}

func show(r *Run) string {
	var parts []string
	for _, s := range r.Steps {
		parts = append(parts, fmt.Sprintf("%s.%d", s.State, s.Try))
	}
	return string(r.State) + "/" + string(r.Ending) + " " + strings.Join(parts, " ")
}

func TestRunsMove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script  []string
		want    string
		effects []string
	}{
		{nil, "RUNNING/ SUBMITTED.1 WAITING.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"task succeeded:a", "task succeeded:b", "task succeeded:c"}, "RUNNING/ SUCCEEDED.1 SUCCEEDED.1 SUCCEEDED.1 SUBMITTED.1", nil},
		{[]string{"task succeeded:a", "task succeeded:b", "task succeeded:c", "task succeeded:x"}, "SUCCEEDED/ SUCCEEDED.1 SUCCEEDED.1 SUCCEEDED.1 SUCCEEDED.1", nil},
		{[]string{"task failed:a"}, "RUNNING/FAILED FAILED.1 SKIPPED.1 SKIPPED.1 SUBMITTED.1", []string{"unqueue x"}},
		{[]string{"task failed:a", "task cancelled:x"}, "FAILED/ FAILED.1 SKIPPED.1 SKIPPED.1 CANCELLED.1", []string{"unqueue x"}},
		{[]string{"task failed:a", "task succeeded:x"}, "FAILED/ FAILED.1 SKIPPED.1 SKIPPED.1 SUCCEEDED.1", []string{"unqueue x"}},
		{[]string{"task failed:a", "task requeued:x"}, "RUNNING/FAILED FAILED.1 SKIPPED.1 SKIPPED.1 SUBMITTED.1", []string{"unqueue x", "unqueue x"}},
		{[]string{"task failed:a", "task needs review:x"}, "WAITING_REVIEW/FAILED FAILED.1 SKIPPED.1 SKIPPED.1 NEEDS_REVIEW.1", []string{"unqueue x"}},
		{[]string{"task failed:a", "cancel"}, "RUNNING/CANCELLED FAILED.1 SKIPPED.1 SKIPPED.1 SUBMITTED.1", []string{"unqueue x", "cancel x"}},
		{[]string{"task cancelled:a"}, "RUNNING/CANCELLED CANCELLED.1 SKIPPED.1 SKIPPED.1 SUBMITTED.1", []string{"cancel x"}},
		{[]string{"task cancelled:a", "task succeeded:x"}, "CANCELLED/ CANCELLED.1 SKIPPED.1 SKIPPED.1 SUCCEEDED.1", []string{"cancel x"}},
		{[]string{"task needs review:a"}, "WAITING_REVIEW/ NEEDS_REVIEW.1 WAITING.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"task needs review:a", "task requeued:a"}, "RUNNING/ SUBMITTED.1 WAITING.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"task needs review:a", "task succeeded:a"}, "RUNNING/ SUCCEEDED.1 SUBMITTED.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"task needs review:a", "pause"}, "PAUSED/ NEEDS_REVIEW.1 WAITING.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"task needs review:a", "pause", "resume"}, "WAITING_REVIEW/ NEEDS_REVIEW.1 WAITING.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"pause", "task succeeded:a"}, "PAUSED/ SUCCEEDED.1 WAITING.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"pause", "task succeeded:a", "resume"}, "RUNNING/ SUCCEEDED.1 SUBMITTED.1 WAITING.1 SUBMITTED.1", nil},
		{[]string{"pause", "task failed:a"}, "RUNNING/FAILED FAILED.1 SKIPPED.1 SKIPPED.1 SUBMITTED.1", []string{"unqueue x"}},
		{[]string{"cancel"}, "RUNNING/CANCELLED SUBMITTED.1 SKIPPED.1 SKIPPED.1 SUBMITTED.1", []string{"cancel a", "cancel x"}},
		{[]string{"cancel", "task succeeded:a", "task cancelled:x"}, "CANCELLED/ SUCCEEDED.1 SKIPPED.1 SKIPPED.1 CANCELLED.1", []string{"cancel a", "cancel x"}},
		{[]string{"task succeeded:a", "task succeeded:b", "task succeeded:c", "cancel", "task succeeded:x"}, "SUCCEEDED/ SUCCEEDED.1 SUCCEEDED.1 SUCCEEDED.1 SUCCEEDED.1", []string{"cancel x"}},
		{[]string{"task failed:a", "task cancelled:x", "retry:a"}, "RUNNING/ SUBMITTED.2 WAITING.1 WAITING.1 SUBMITTED.2", []string{"unqueue x"}},
		{[]string{"task failed:a", "task failed:x", "retry:a"}, "RUNNING/ SUBMITTED.2 WAITING.1 WAITING.1 FAILED.1", []string{"unqueue x"}},
		{[]string{"task failed:a", "task failed:x", "retry:a", "retry:x"}, "RUNNING/ SUBMITTED.2 WAITING.1 WAITING.1 SUBMITTED.2", []string{"unqueue x"}},
		{[]string{"task failed:a", "task failed:x", "retry:a", "task succeeded:a", "task succeeded:b", "task succeeded:c"}, "FAILED/ SUCCEEDED.2 SUCCEEDED.1 SUCCEEDED.1 FAILED.1", []string{"unqueue x"}},
		{[]string{"task failed:a", "task failed:x", "retry:x", "task succeeded:x"}, "FAILED/ FAILED.1 SKIPPED.1 SKIPPED.1 SUCCEEDED.2", []string{"unqueue x"}},
		{[]string{"task failed:a", "task succeeded:x", "retry:a", "task failed:a"}, "FAILED/ FAILED.2 SKIPPED.1 SKIPPED.1 SUCCEEDED.1", []string{"unqueue x"}},
		{[]string{"cancel", "task cancelled:a", "task cancelled:x", "retry:x"}, "RUNNING/ SUBMITTED.2 WAITING.1 WAITING.1 SUBMITTED.2", []string{"cancel a", "cancel x"}},
	} {
		r, effects := play(t, abc(t), c.script...)
		if got := show(r); got != c.want || !slices.Equal(effects, c.effects) {
			t.Errorf("%v: %s, %v\nwant %s, %v", c.script, got, effects, c.want, c.effects)
		}
	}
}

func TestCommandsThatAStateRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script []string
		e      Event
		want   string
	}{
		{[]string{"pause"}, Event{Kind: Pause}, "the run is PAUSED; pause is not possible"},
		{nil, Event{Kind: Resume}, "the run is RUNNING; resume is not possible"},
		{[]string{"cancel"}, Event{Kind: Pause}, "the run is RUNNING and ends as CANCELLED; pause is not possible"},
		{[]string{"cancel"}, Event{Kind: Cancel}, "the run is RUNNING and ends as CANCELLED; cancel is not possible"},
		{[]string{"cancel", "task cancelled:a", "task cancelled:x"}, Event{Kind: Cancel}, "the run is CANCELLED; cancel is not possible"},
		{nil, Event{Kind: Retry, Step: 0}, `step "a" is SUBMITTED; only a FAILED or CANCELLED step can be retried`},
		{[]string{"task failed:a"}, Event{Kind: Retry, Step: 0}, "the run is RUNNING and ends as FAILED once its running tasks are done; retry then"},
		{[]string{"task failed:a", "task failed:x", "retry:a", "pause"}, Event{Kind: Retry, Step: 3}, "the run is PAUSED; resume it first"},
		{[]string{"task failed:a", "task cancelled:x"}, Event{Kind: Retry, Step: 1}, `step "b" is SKIPPED; only`},
	} {
		p := abc(t)
		r, _ := play(t, p, c.script...)
		before := show(r)
		if _, err := p.Apply(r, c.e); err == nil || !strings.HasPrefix(err.Error(), c.want) || show(r) != before {
			t.Errorf("%v then %v: %v, %s", c.script, c.e, err, show(r))
		}
	}
}

// drawPlan makes a DAG of up to n steps.
func drawPlan(t *rapid.T, n int) *Plan {
	var steps []Step
	for i := range rapid.IntRange(1, n).Draw(t, "steps") {
		s := step(fmt.Sprintf("s%d", i), `1`)
		for k := range min(i, rapid.IntRange(0, 3).Draw(t, "needs")) {
			need := fmt.Sprintf("s%d", rapid.IntRange(0, i-1).Draw(t, "need"))
			if _ = k; !slices.Contains(s.DependsOn, need) {
				s.DependsOn = append(s.DependsOn, need)
			}
		}
		steps = append(steps, s)
	}
	d := Definition{Steps: steps}
	p, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRunsNeverGetStuck plays random histories: a step begins only after what it depends on, a final
// run has nothing live or waiting, one that is not final has something live, something ready or is
// paused, old events change nothing, and once tasks only succeed and nobody interferes, every run ends.
func TestRunsNeverGetStuck(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, 100)
		r := NewRun(p)
		check := func() {
			live, waiting := 0, 0
			for i, s := range r.Steps {
				if s.State.live() {
					live++
				}
				if s.State == StepWaiting {
					waiting++
				}
				if s.State != StepWaiting && s.State != StepSkipped && !p.met(r, i) && s.State != StepFailed {
					for _, need := range p.needs[i] {
						if r.Steps[need].State == StepWaiting {
							t.Fatalf("step %d is %s before step %d", i, s.State, need)
						}
					}
				}
			}
			switch {
			case r.State.Final():
				if live+waiting > 0 || r.Ending != "" {
					t.Fatalf("final with work left: %s", show(r))
				}
			case live == 0 && r.State != Paused && len(p.Ready(r)) == 0:
				t.Fatalf("stuck: %s", show(r))
			}
		}
		submit := func() {
			for _, i := range p.Ready(r) {
				kind := Submitted
				if rapid.IntRange(0, 40).Draw(t, "refuse") == 0 {
					kind = Refused
				}
				if r.Ending != "" {
					break
				}
				if _, err := p.Apply(r, Event{Kind: kind, Step: i}); err != nil {
					t.Fatal(err)
				}
			}
			check()
		}
		submit()
		kinds := []Kind{TaskSucceeded, TaskSucceeded, TaskSucceeded, TaskSucceeded, TaskSucceeded, TaskFailed, TaskCancelled, TaskNeedsReview, TaskRequeued, Pause, Resume, Resume, Cancel, Retry, Retry}
		for range rapid.IntRange(0, 300).Draw(t, "events") {
			e := Event{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Step: rapid.IntRange(0, len(p.Steps)-1).Draw(t, "step")}
			e.Try = r.Steps[e.Step].Try - rapid.IntRange(0, 1).Draw(t, "old")
			before, old := show(r), e.Try < r.Steps[e.Step].Try
			_, err := p.Apply(r, e)
			if (err != nil || old && strings.HasPrefix(string(e.Kind), "task")) && show(r) != before {
				t.Fatalf("%v should change nothing: %s\n%s", e, before, show(r))
			}
			check()
			submit()
		}
		if r.State == Paused {
			_, _ = p.Apply(r, Event{Kind: Resume})
		}
		for n := 0; !r.State.Final(); n++ {
			submit()
			for i, s := range r.Steps {
				if s.State.live() {
					_, _ = p.Apply(r, Event{Kind: TaskSucceeded, Step: i, Try: s.Try})
				}
			}
			check()
			if n > len(p.Steps)+1 {
				t.Fatalf("never ends: %s", show(r))
			}
		}
	})
}
