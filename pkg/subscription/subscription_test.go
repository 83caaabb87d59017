package subscription

import (
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
)

func TestCreateLimits(t *testing.T) {
	t.Parallel()
	queue := ids.New()
	for name, c := range map[string]struct {
		change func(*Create)
		field  string
	}{
		"defaults":         {func(*Create) {}, ""},
		"no name":          {func(c *Create) { c.Name = "" }, "name"},
		"name of 128":      {func(c *Create) { c.Name = strings.Repeat("n", 128) }, ""},
		"name of 129":      {func(c *Create) { c.Name = strings.Repeat("n", 129) }, "name"},
		"no queue":         {func(c *Create) { c.QueueID = nil }, "queue_id"},
		"max_pending −1":   {func(c *Create) { c.MaxPending = -1 }, "max_pending"},
		"max_pending 1":    {func(c *Create) { c.MaxPending = 1 }, ""},
		"max_pending 999":  {func(c *Create) { c.MaxPending = 999 }, ""},
		"max_pending 1000": {func(c *Create) { c.MaxPending = 1000 }, ""},
		"max_pending 1001": {func(c *Create) { c.MaxPending = 1001 }, "max_pending"},
		"max_attempts −1":  {func(c *Create) { c.MaxAttempts = -1 }, "max_attempts"},
		"max_attempts 100": {func(c *Create) { c.MaxAttempts = 100 }, ""},
		"max_attempts 101": {func(c *Create) { c.MaxAttempts = 101 }, "max_attempts"},
		"one type":         {func(c *Create) { c.Types = []string{"task.failed"} }, ""},
		"a type twice":     {func(c *Create) { c.Types = []string{"task.failed", "task.failed"} }, "types"},
		"requeued":         {func(c *Create) { c.Types = []string{"task.requeued"} }, "types"},
		"no types":         {func(c *Create) { c.Types = []string{} }, ""},
	} {
		create := Create{Name: "n", QueueID: &queue}
		c.change(&create)
		_, err := create.Normalise()
		if c.field == "" && err != nil || c.field != "" && !strings.HasPrefix(errs.MessageOf(err), c.field+": ") {
			t.Errorf("%s: %v, want a fault of %q", name, err, c.field)
		}
	}
	n, err := Create{Name: "n", QueueID: &queue}.Normalise()
	if err != nil || n.MaxPending != 100 || n.MaxAttempts != 20 || n.Types != result.AllTypes || n.FromSequence != nil {
		t.Errorf("defaults %+v, %v", n, err)
	}
}

func TestTypesComeInTheFixedOrder(t *testing.T) {
	t.Parallel()
	set, err := result.ParseTypes([]string{"task.succeeded", "task.needs_review", "task.cancelled"})
	if err != nil {
		t.Fatal(err)
	}
	got := set.List()
	want := []result.Type{result.TaskCancelled, result.TaskNeedsReview, result.TaskSucceeded}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if set.Has(result.TaskFailed) || !set.Has(result.TaskCancelled) || set.Has(result.TaskRequeued) {
		t.Errorf("%v has what it has not", set)
	}
}

func TestConfigureNeedsAllThree(t *testing.T) {
	t.Parallel()
	revision, on := ids.Counter(1), true
	for name, c := range map[string]struct {
		body  Configure
		field string
	}{
		"all":         {Configure{&revision, &on, "r"}, ""},
		"no revision": {Configure{nil, &on, "r"}, "expected_revision"},
		"no enabled":  {Configure{&revision, nil, "r"}, "enabled"},
		"no reason":   {Configure{&revision, &on, ""}, "reason"},
		"1024":        {Configure{&revision, &on, strings.Repeat("界", 1024)}, ""},
		"1025":        {Configure{&revision, &on, strings.Repeat("界", 1025)}, "reason"},
	} {
		err := c.body.Validate()
		if c.field == "" && err != nil || c.field != "" && !strings.HasPrefix(errs.MessageOf(err), c.field+": ") {
			t.Errorf("%s: %v, want a fault of %q", name, err, c.field)
		}
	}
}
