package access

import (
	"slices"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	id, secret := ids.New(), ids.NewSecret()
	token := FormatToken(id, secret)
	if gotID, gotSecret, err := ParseToken(token); err != nil || gotID != id || gotSecret != secret {
		t.Errorf("%s does not read back: %v", token, err)
	}
	for _, bad := range []string{
		"", "orbit_", token + "x", token[1:], "Orbit" + token[5:], strings.Replace(token, "_", "-", 1), strings.ToUpper(token),
		token[:len(token)-1], " " + token, token + "\n", token[:38] + "-" + token[39:],
	} {
		if _, _, err := ParseToken(bad); err == nil {
			t.Errorf("%q is taken for a token", bad)
		}
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	all, err := ParseActions(JoinActions(Actions))
	if err != nil || len(all) != len(Actions) || !slices.IsSorted(all) {
		t.Errorf("%v, %v", all, err)
	}
	for _, bad := range []string{"", "events:write", "events:read,events:read", "Events:read", "events:read,"} {
		if _, err := ParseActions(bad); err == nil {
			t.Errorf("%q is taken for actions", bad)
		}
	}
	events := 0
	for _, a := range Actions {
		if a.IsEvent() {
			events++
		}
	}
	if events != 3 {
		t.Errorf("%d event actions", events)
	}
}

func TestNoActionImpliesAnother(t *testing.T) {
	t.Parallel()
	for _, has := range Actions {
		c := Caller{Actions: []Action{has}}
		for _, asked := range Actions {
			err := c.Require(asked)
			if (err == nil) != (has == asked) || err != nil && !errs.Is(err, errs.PermissionDenied) {
				t.Errorf("%s for %s: %v", has, asked, err)
			}
		}
	}
}

func TestScope(t *testing.T) {
	t.Parallel()
	mine, other := ids.New(), ids.New()
	if c := (Caller{Queues: []ids.ID{mine}}); !c.MayUse(mine) || c.MayUse(other) {
		t.Error("a list of queues is not what it says")
	}
	if c := (Caller{AllQueues: true}); !c.MayUse(other) {
		t.Error("all queues are not all")
	}
}
