package queue

import (
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

func TestRetireNeedsBoth(t *testing.T) {
	t.Parallel()
	revision := ids.Counter(3)
	for name, c := range map[string]struct {
		body  Retire
		field string
	}{
		"both":        {Retire{&revision, "done"}, ""},
		"no revision": {Retire{nil, "done"}, "expected_revision"},
		"no reason":   {Retire{&revision, ""}, "reason"},
		"1023":        {Retire{&revision, strings.Repeat("界", 1023)}, ""},
		"1024":        {Retire{&revision, strings.Repeat("界", 1024)}, ""},
		"1025":        {Retire{&revision, strings.Repeat("界", 1025)}, "reason"},
		"not UTF-8":   {Retire{&revision, "\xff"}, "reason"},
	} {
		err := c.body.Validate()
		if c.field == "" && err != nil || c.field != "" && !strings.HasPrefix(errs.MessageOf(err), c.field+": ") {
			t.Errorf("%s: %v, want a fault of %q", name, err, c.field)
		}
	}
}

func TestARetiredQueueRefuses(t *testing.T) {
	t.Parallel()
	q := &Queue{ID: ids.New()}
	if err := q.Refuse(); err != nil {
		t.Errorf("a live queue refuses: %v", err)
	}
	at := time.Date(2026, 9, 17, 10, 0, 0, 0, time.UTC)
	q.RetiredAt = &at
	if err := q.Refuse(); !errs.Is(err, errs.ResourceRetired) || !strings.Contains(errs.MessageOf(err), q.ID.String()) || !strings.Contains(errs.MessageOf(err), "2026-09-17T10:00:00Z") {
		t.Errorf("got %v", err)
	}
}
