// Package access says who may do what: actions, queue scopes and the token's form (§2.1, §4).
package access

import (
	"fmt"
	"slices"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Action is one permission; none implies another.
type Action string

// The actions of §4.
const (
	EventsManage    Action = "events:manage"
	EventsRead      Action = "events:read"
	EventsConsume   Action = "events:consume"
	QueuesManage    Action = "queues:manage"
	QueuesRead      Action = "queues:read"
	TasksSubmit     Action = "tasks:submit"
	TasksRead       Action = "tasks:read"
	TasksManage     Action = "tasks:manage"
	WorkersExecute  Action = "workers:execute"
	SchedulesManage Action = "schedules:manage"
	SchedulesRead   Action = "schedules:read"
	FlowsManage     Action = "flows:manage"
	FlowsRead       Action = "flows:read"
	FlowsStart      Action = "flows:start"
)

// Actions lists all of them.
var Actions = []Action{
	EventsManage, EventsRead, EventsConsume, QueuesManage, QueuesRead, TasksSubmit, TasksRead, TasksManage,
	WorkersExecute, SchedulesManage, SchedulesRead, FlowsManage, FlowsRead, FlowsStart,
}

// IsEvent reports whether the action is granted by bootstrap only with --event-access.
func (a Action) IsEvent() bool { return strings.HasPrefix(string(a), "events:") }

// ParseActions reads a comma-separated list of known, non-repeating actions, sorted on return.
func ParseActions(list string) ([]Action, error) {
	var out []Action
	for name := range strings.SplitSeq(list, ",") {
		a := Action(strings.TrimSpace(name))
		if !slices.Contains(Actions, a) {
			return nil, fmt.Errorf("unknown action %q", a)
		}
		if slices.Contains(out, a) {
			return nil, fmt.Errorf("action %q is named twice", a)
		}
		out = append(out, a)
	}
	slices.Sort(out)
	return out, nil
}

// JoinActions is the stored form that ParseActions reads.
func JoinActions(actions []Action) string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = string(a)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// Caller is an authenticated credential: everything a request may not say about itself (R2.1).
type Caller struct {
	NamespaceID   ids.ID
	ApplicationID ids.ID
	CredentialID  ids.ID
	Actions       []Action
	AllQueues     bool
	Queues        []ids.ID // the scope when AllQueues is false
}

// Require returns PERMISSION_DENIED unless the caller has the action.
func (c *Caller) Require(a Action) error {
	if slices.Contains(c.Actions, a) {
		return nil
	}
	return errs.New(errs.PermissionDenied, "credential %s lacks the action %s", c.CredentialID, a)
}

// MayUse reports whether the queue is in the caller's scope.
func (c *Caller) MayUse(queue ids.ID) bool { return c.AllQueues || slices.Contains(c.Queues, queue) }

const tokenPrefix = "orbit_"

// FormatToken writes orbit_<credential id>_<secret>.
func FormatToken(credential ids.ID, secret ids.Secret) string {
	return tokenPrefix + credential.String() + "_" + secret.Text()
}

// ParseToken reads what FormatToken writes and nothing else.
func ParseToken(token string) (ids.ID, ids.Secret, error) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(rest) != 32+1+43 || rest[32] != '_' {
		return ids.ID{}, ids.Secret{}, fmt.Errorf("malformed token")
	}
	id, err := ids.ParseID(rest[:32])
	if err != nil {
		return ids.ID{}, ids.Secret{}, fmt.Errorf("malformed token")
	}
	secret, err := ids.ParseSecret(rest[33:])
	if err != nil {
		return ids.ID{}, ids.Secret{}, fmt.Errorf("malformed token")
	}
	return id, secret, nil
}
