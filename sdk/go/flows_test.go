package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// The service's recorded exchanges on flows and runs, read back without losing a member.
func TestGoldenFlows(t *testing.T) {
	t.Parallel()
	const flow, run, key = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "k"
	ctx := context.Background()
	for name, call := range map[string]func(c *Client, body json.RawMessage) (any, error){
		"create_flow": func(c *Client, body json.RawMessage) (any, error) {
			return c.CreateFlow(ctx, key, as[CreateFlowRequest](t, body))
		},
		"publish_flow": func(c *Client, body json.RawMessage) (any, error) {
			return c.PublishFlow(ctx, flow, key, as[PublishFlowRequest](t, body))
		},
		"get_flow":         func(c *Client, _ json.RawMessage) (any, error) { return c.GetFlow(ctx, flow) },
		"get_flow_version": func(c *Client, _ json.RawMessage) (any, error) { return c.GetFlowVersion(ctx, flow, 1) },
		"list_flows":       func(c *Client, _ json.RawMessage) (any, error) { return c.ListFlows(ctx, ListOptions{Limit: 1}) },
		"start_flow": func(c *Client, body json.RawMessage) (any, error) {
			return c.StartFlow(ctx, flow, key, as[StartFlowRequest](t, body))
		},
		"get_run": func(c *Client, _ json.RawMessage) (any, error) { return c.GetRun(ctx, run) },
		"list_runs": func(c *Client, _ json.RawMessage) (any, error) {
			return c.ListRuns(ctx, ListRunsRequest{FlowID: flow, State: RunStateRunning})
		},
		"pause_run": func(c *Client, body json.RawMessage) (any, error) {
			return c.PauseRun(ctx, run, key, as[RunCommandRequest](t, body))
		},
		"resume_run": func(c *Client, body json.RawMessage) (any, error) {
			return c.ResumeRun(ctx, run, key, as[RunCommandRequest](t, body))
		},
		"cancel_run": func(c *Client, body json.RawMessage) (any, error) {
			return c.CancelRun(ctx, run, key, as[RunCommandRequest](t, body))
		},
		"retry_step": func(c *Client, body json.RawMessage) (any, error) {
			return c.RetryRunStep(ctx, run, "resize", key, as[RunCommandRequest](t, body))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exchange(t, name, call)
		})
	}
}

func TestFlowRequestsKeepBytes(t *testing.T) {
	t.Parallel()
	client, _, _, body := replay(t, readGolden(t, "create_flow"))
	input := json.RawMessage(`{ "n" : 1.0 , "ref": ` + string(StepResult("a", "/x<y")) + `, "all":` + string(RunInput("")) + ` }`)
	r := CreateFlowRequest{Name: "f", Steps: []FlowStep{{Name: "a", QueueID: "q", Input: input, Labels: map[string]string{"k": "v"}, Priority: 1}}}
	if _, err := client.CreateFlow(context.Background(), "k", r); err != nil {
		t.Fatal(err)
	}
	want := `{"name":"f","steps":[{"name":"a","queue_id":"q","input":` + string(input) + `,"priority":1,"labels":{"k":"v"}}]}`
	if string(*body) != want {
		t.Errorf("sent %s\nwant %s", *body, want)
	}
	r.Steps = append(r.Steps, FlowStep{Name: "b", Input: json.RawMessage(`{`)})
	var refused *Error
	if _, err := client.CreateFlow(context.Background(), "k", r); !errors.As(err, &refused) || refused.Message != "steps[1].input: is not valid JSON in UTF-8" {
		t.Errorf("broken input: %v", err)
	}
	for _, step := range []string{"", "a/b", "a:b", "a?b", "-a"} {
		if _, err := client.RetryRunStep(context.Background(), "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", step, "k", RunCommandRequest{Reason: "r"}); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("step %q: %v", step, err)
		}
	}
}
