// Package flow is a DAG of tasks and its runs (R10.2): what a definition may say, how a step's input
// refers to what came before, and the state machine of a run.
package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// MaxSteps of a definition (R10.2).
const MaxSteps = 100

// Definition is a DAG of steps. A published one never changes.
type Definition struct {
	Steps []Step `json:"steps"`
}

// Step is a task template. It is submitted once all of DependsOn have succeeded; Input may refer to
// the run's input and to results of steps that it depends on, directly or not (see Template).
type Step struct {
	Name        string            `json:"name"`
	QueueID     *ids.ID           `json:"queue_id"`
	DependsOn   []string          `json:"depends_on"`
	Input       strictjson.Raw    `json:"input"`
	RetrySafety string            `json:"retry_safety"`
	MaxAttempts int               `json:"max_attempts"`
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels"`
}

// Submit is the task of the step with this input.
func (s *Step) Submit(input []byte) task.Submit {
	return task.Submit{QueueID: s.QueueID, Input: input, RetrySafety: s.RetrySafety, MaxAttempts: s.MaxAttempts, Priority: s.Priority, Labels: s.Labels}
}

// Plan is a checked definition with its edges and references as numbers of steps.
type Plan struct {
	Steps     []Step
	needs     [][]int // direct dependencies
	templates []Template
}

// Plan applies defaults and checks everything that needs no database: names, limits, edges, cycles and
// references. Errors are INVALID_ARGUMENT and name the path, as steps.3.depends_on.0.
func (d *Definition) Plan() (*Plan, error) {
	if n := len(d.Steps); n < 1 || n > MaxSteps {
		return nil, errs.Invalid("steps", "must have 1…%d items, has %d", MaxSteps, n)
	}
	p := &Plan{Steps: d.Steps, needs: make([][]int, len(d.Steps)), templates: make([]Template, len(d.Steps))}
	index := map[string]int{}
	for i := range d.Steps {
		if err := d.Steps[i].normalise(i); err != nil {
			return nil, err
		}
		name := d.Steps[i].Name
		if first, twice := index[name]; twice {
			return nil, errs.Invalid(fmt.Sprintf("steps.%d.name", i), "%q is already the name of steps.%d", name, first)
		}
		index[name] = i
	}
	if err := p.link(index); err != nil {
		return nil, err
	}
	above, err := p.ancestors()
	if err != nil {
		return nil, err
	}
	for i := range p.Steps {
		if p.templates[i], err = parseTemplate(p.Steps[i].Input, index); err != nil {
			return nil, errs.Invalid(fmt.Sprintf("steps.%d.input", i), "%v", err)
		}
		for _, h := range p.templates[i].holes {
			if h.step >= 0 && !above[i][h.step] {
				return nil, errs.Invalid(fmt.Sprintf("steps.%d.input", i), "at %q: refers to step %q, which step %q does not depend on",
					h.at, p.Steps[h.step].Name, p.Steps[i].Name)
			}
		}
	}
	return p, nil
}

func (s *Step) normalise(i int) error {
	if err := ids.CheckName(s.Name); err != nil {
		return errs.Invalid(fmt.Sprintf("steps.%d.name", i), "%v", err)
	}
	sub := s.Submit(s.Input)
	if err := sub.Normalise(); err != nil {
		return errs.Invalid(fmt.Sprintf("steps.%d.%s", i, fieldOf(err)), "%s", strings.TrimPrefix(errs.MessageOf(err), fieldOf(err)+": "))
	}
	s.RetrySafety, s.MaxAttempts = sub.RetrySafety, sub.MaxAttempts
	return nil
}

// fieldOf is the field that an INVALID_ARGUMENT names first.
func fieldOf(err error) string {
	field, _, _ := strings.Cut(errs.MessageOf(err), ": ")
	return field
}

// link resolves depends_on.
func (p *Plan) link(index map[string]int) error {
	for i, s := range p.Steps {
		for k, name := range s.DependsOn {
			field := fmt.Sprintf("steps.%d.depends_on.%d", i, k)
			need, known := index[name]
			switch {
			case !known:
				return errs.Invalid(field, "there is no step %q", short(name))
			case need == i:
				return errs.Invalid(field, "step %q depends on itself", name)
			case slices.Contains(p.needs[i], need):
				return errs.Invalid(field, "step %q is named twice", name)
			}
			p.needs[i] = append(p.needs[i], need)
		}
	}
	return nil
}

// short keeps a client's text from becoming a long message.
func short(s string) string {
	if len(s) > 128 {
		return strings.ToValidUTF8(s[:128], "") + "…"
	}
	return s
}

// ancestors returns for each step the steps it depends on, directly or not. A cycle is refused with
// its path.
func (p *Plan) ancestors() ([]map[int]bool, error) {
	above := make([]map[int]bool, len(p.Steps))
	var path []int
	var visit func(i int) error
	visit = func(i int) error {
		if above[i] != nil {
			return nil
		}
		if at := slices.Index(path, i); at >= 0 {
			var names []string
			for _, k := range append(slices.Clone(path[at:]), i) {
				names = append(names, p.Steps[k].Name)
			}
			return errs.Invalid(fmt.Sprintf("steps.%d.depends_on", i), "is part of the cycle %s", strings.Join(names, " → "))
		}
		path = append(path, i)
		set := map[int]bool{}
		for _, need := range p.needs[i] {
			if err := visit(need); err != nil {
				return err
			}
			set[need] = true
			for k := range above[need] {
				set[k] = true
			}
		}
		path = path[:len(path)-1]
		above[i] = set
		return nil
	}
	for i := range p.Steps {
		if err := visit(i); err != nil {
			return nil, err
		}
	}
	return above, nil
}

// Queues lists the queues of all steps in key order, each once: the order of locking.
func (p *Plan) Queues() []ids.ID {
	var out []ids.ID
	for _, s := range p.Steps {
		out = append(out, *s.QueueID)
	}
	slices.SortFunc(out, func(a, b ids.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

// PathOf names the first step that uses a queue, as steps.2.queue_id.
func (p *Plan) PathOf(queue ids.ID) string {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return *s.QueueID == queue })
	return fmt.Sprintf("steps.%d.queue_id", i)
}

// Index is the number of a step, −1 for an unknown name.
func (p *Plan) Index(name string) int {
	return slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == name })
}

// JSON is the array of steps as it is stored and answered; inputs keep their bytes (R1.5).
func (p *Plan) JSON() ([]byte, error) {
	b := []byte{'['}
	for i, s := range p.Steps {
		if i > 0 {
			b = append(b, ',')
		}
		head, err := json.Marshal(struct {
			Name        string            `json:"name"`
			QueueID     *ids.ID           `json:"queue_id"`
			DependsOn   []string          `json:"depends_on,omitempty"`
			RetrySafety string            `json:"retry_safety"`
			MaxAttempts int               `json:"max_attempts"`
			Priority    int               `json:"priority"`
			Labels      map[string]string `json:"labels,omitempty"`
		}{s.Name, s.QueueID, s.DependsOn, s.RetrySafety, s.MaxAttempts, s.Priority, s.Labels}, json.Deterministic(true))
		if err != nil {
			return nil, fmt.Errorf("encode step %q: %w", s.Name, err)
		}
		b = append(append(append(b, head[:len(head)-1]...), `,"input":`...), s.Input...)
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// ParsePlan reads what JSON wrote.
func ParsePlan(steps []byte) (*Plan, error) {
	var d Definition
	if err := strictjson.Decode(append(append([]byte(`{"steps":`), steps...), '}'), &d); err != nil {
		return nil, err
	}
	return d.Plan()
}
