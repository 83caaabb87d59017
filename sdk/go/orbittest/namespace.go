package orbittest

import (
	"encoding/json"
	"testing"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// Namespace makes a namespace of its own in a stack that this process started, with one queue and one
// credential for everything, so that tests which share a stack see nothing of each other.
func (s *Stack) Namespace(tb testing.TB) Endpoint {
	tb.Helper()
	out := s.Admin(tb, "bootstrap", "--output", "json", "--event-access", "--all-queues",
		"--namespace", "test-"+orbit.NewID(), "--application", "test", "--queue", "default", "--credential", "test")
	var made struct {
		QueueID string `json:"queue_id"`
		Token   string `json:"token"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		tb.Fatalf("orbittest: read bootstrap's answer: %v", err)
	}
	return Endpoint{ManagementURL: s.ManagementURL, GatewayURL: s.GatewayURL, Token: made.Token, QueueID: made.QueueID}
}

// CredentialID is the part of a token that is no secret; administration commands take it.
func (e Endpoint) CredentialID() string { return e.Token[len("orbit_") : len("orbit_")+32] }
