package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// The service's recorded exchanges on schedules are asked and read without losing a member.
func TestGoldenScheduleExchanges(t *testing.T) {
	t.Parallel()
	const queue, id, key = "11111111111111111111111111111111", "44444444444444444444444444444444", "k"
	ctx := context.Background()
	command := func(call func(*Client) func(context.Context, string, string, ScheduleCommandRequest) (*ScheduleResult, error)) func(*testing.T, *Client, json.RawMessage) (any, error) {
		return func(t *testing.T, c *Client, body json.RawMessage) (any, error) {
			return call(c)(ctx, id, key, as[ScheduleCommandRequest](t, body))
		}
	}
	for name, call := range map[string]func(t *testing.T, c *Client, body json.RawMessage) (any, error){
		"create_schedule": func(t *testing.T, c *Client, body json.RawMessage) (any, error) {
			return c.CreateSchedule(ctx, key, as[CreateScheduleRequest](t, body))
		},
		"update_schedule": func(t *testing.T, c *Client, body json.RawMessage) (any, error) {
			return c.UpdateSchedule(ctx, id, key, as[UpdateScheduleRequest](t, body))
		},
		"publish_schedule": command(func(c *Client) func(context.Context, string, string, ScheduleCommandRequest) (*ScheduleResult, error) {
			return c.PublishSchedule
		}),
		"pause_schedule": command(func(c *Client) func(context.Context, string, string, ScheduleCommandRequest) (*ScheduleResult, error) {
			return c.PauseSchedule
		}),
		"resume_schedule": command(func(c *Client) func(context.Context, string, string, ScheduleCommandRequest) (*ScheduleResult, error) {
			return c.ResumeSchedule
		}),
		"run_schedule": func(t *testing.T, c *Client, body json.RawMessage) (any, error) {
			return c.RunSchedule(ctx, id, key, as[ScheduleCommandRequest](t, body))
		},
		"get_schedule": func(_ *testing.T, c *Client, _ json.RawMessage) (any, error) { return c.GetSchedule(ctx, id) },
		"list_schedules": func(_ *testing.T, c *Client, _ json.RawMessage) (any, error) {
			return c.ListSchedules(ctx, ListSchedulesRequest{QueueID: queue, Limit: 10})
		},
		"list_schedule_fires": func(_ *testing.T, c *Client, _ json.RawMessage) (any, error) {
			return c.ListScheduleFires(ctx, id, ListOptions{Limit: 2})
		},
		"preview_schedule": func(_ *testing.T, c *Client, _ json.RawMessage) (any, error) {
			items, err := c.PreviewSchedule(ctx, id, PreviewScheduleRequest{Version: "published", Count: 2})
			return Page[UpcomingFire]{Items: items}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exchange(t, name, func(c *Client, body json.RawMessage) (any, error) { return call(t, c, body) })
		})
	}
}

// An input that is no JSON is refused before it is sent; it would change the request around it.
func TestScheduleInputIsChecked(t *testing.T) {
	t.Parallel()
	client, err := NewClient("http://127.0.0.1:1", "orbit_x", WithRetry(1, Backoff{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	_, err = client.CreateSchedule(context.Background(), "k", CreateScheduleRequest{Name: "s", ScheduleSpec: ScheduleSpec{Every: 5, Task: ScheduleTask{Input: json.RawMessage(`1},"x":{`)}}})
	if !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}
