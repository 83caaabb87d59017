package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"time"
)

// Flow is a DAG of tasks; its definitions are its versions 1…Version, which never change (R10.2).
type Flow struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Revision  Counter   `json:"revision"`
	Version   int       `json:"version"` // the newest
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// FlowResult answers a command: the flow as the first execution of the key left it.
type FlowResult struct {
	Flow         Flow `json:"flow"`
	Deduplicated bool `json:"deduplicated"`
}

// FlowStep is a task template. It is submitted once all of DependsOn have succeeded. In Input, a value that
// is exactly {"$run": "/json/pointer"} stands for that part of the run's input, one that is exactly
// {"$step": "name", "path": "/json/pointer"} for that part of the result of a step that this one depends on,
// directly or not, and {"$literal": any} for any as it is. Bytes are kept; RunInput and StepResult write
// such references.
type FlowStep struct {
	Name        string            `json:"name"`
	QueueID     string            `json:"queue_id"`
	DependsOn   []string          `json:"depends_on,omitempty"`
	Input       json.RawMessage   `json:"input"`                  // required
	RetrySafety RetrySafety       `json:"retry_safety,omitempty"` // "": Unsafe
	MaxAttempts int               `json:"max_attempts,omitempty"` // of the task, 1–100 (0: 3)
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// RunInput is a reference to a part of the run's input, "" for all of it (RFC 6901).
func RunInput(pointer string) json.RawMessage {
	var o object
	o.put("$run", pointer)
	return json.RawMessage(o.done())
}

// StepResult is a reference to a part of a step's result, "" for all of it (RFC 6901).
func StepResult(step, pointer string) json.RawMessage {
	var o object
	o.put("$step", step)
	o.put("path", pointer)
	return json.RawMessage(o.done())
}

func (s FlowStep) encode() ([]byte, error) {
	var o object
	o.put("name", s.Name)
	o.put("queue_id", s.QueueID)
	if len(s.DependsOn) > 0 {
		o.put("depends_on", s.DependsOn)
	}
	if s.Input != nil {
		if err := checkRaw("input", s.Input); err != nil {
			return nil, err
		}
		o.raw("input", s.Input)
	}
	if s.RetrySafety != "" {
		o.put("retry_safety", s.RetrySafety)
	}
	if s.MaxAttempts != 0 {
		o.put("max_attempts", s.MaxAttempts)
	}
	if s.Priority != 0 {
		o.put("priority", s.Priority)
	}
	if len(s.Labels) > 0 {
		o.put("labels", s.Labels)
	}
	return o.done(), nil
}

// steps appends the member "steps".
func (o *object) steps(steps []FlowStep) error {
	text := []byte{'['}
	for i, s := range steps {
		item, err := s.encode()
		if err != nil {
			var refused *Error
			if errors.As(err, &refused) {
				return invalid("steps[%d].%s", i, refused.Message)
			}
			return err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, item...)
	}
	o.raw("steps", append(text, ']'))
	return nil
}

// CreateFlowRequest names a flow and defines its version 1, of at most 100 steps.
type CreateFlowRequest struct {
	Name  string     `json:"name"`
	Steps []FlowStep `json:"steps"`
}

// PublishFlowRequest defines the next version.
type PublishFlowRequest struct {
	ExpectedRevision Counter    `json:"expected_revision"`
	Reason           string     `json:"reason"` // 1–1024 characters
	Steps            []FlowStep `json:"steps"`
}

// FlowVersion is one published definition, defaults applied.
type FlowVersion struct {
	FlowID    string     `json:"flow_id"`
	Version   int        `json:"version"`
	CreatedAt time.Time  `json:"created_at"`
	Steps     []FlowStep `json:"steps"`
}

// CreateFlow publishes version 1 of a new flow. ErrInvalidArgument names the path of what is wrong, a cycle
// too; ErrResourceRetired that of a step whose queue is retired.
func (c *Client) CreateFlow(ctx context.Context, key string, r CreateFlowRequest) (*FlowResult, error) {
	var o object
	o.put("name", r.Name)
	if err := o.steps(r.Steps); err != nil {
		return nil, err
	}
	out := new(FlowResult)
	return result(out, c.post(ctx, "/v1/flows", key, o.done(), out))
}

// PublishFlow adds a version, which becomes the newest; runs that have begun keep theirs.
func (c *Client) PublishFlow(ctx context.Context, id, key string, r PublishFlowRequest) (*FlowResult, error) {
	var o object
	o.put("expected_revision", r.ExpectedRevision)
	o.put("reason", r.Reason)
	if err := o.steps(r.Steps); err != nil {
		return nil, err
	}
	out := new(FlowResult)
	return result(out, c.command(ctx, "flows", id, ":publish", key, o.done(), out))
}

// GetFlow reads a flow.
func (c *Client) GetFlow(ctx context.Context, id string) (*Flow, error) {
	out := new(Flow)
	return result(out, c.one(ctx, "flows", id, "", nil, out))
}

// GetFlowVersion reads a definition.
func (c *Client) GetFlowVersion(ctx context.Context, id string, version int) (*FlowVersion, error) {
	out := new(FlowVersion)
	return result(out, c.one(ctx, "flows", id, "/versions/"+strconv.Itoa(version), nil, out))
}

// ListFlows reads one page of the flows whose newest version is in the credential's scope.
func (c *Client) ListFlows(ctx context.Context, o ListOptions) (*Page[Flow], error) {
	out := new(Page[Flow])
	return result(out, c.get(ctx, "/v1/flows", o.query(), out))
}

// AllFlows reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllFlows(ctx context.Context) iter.Seq2[Flow, error] {
	return all(ctx, ListOptions{Limit: 100}, c.ListFlows)
}

// isName accepts the names of R1.6, which are safe in a path.
func isName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
