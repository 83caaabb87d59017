package orbittest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

// long is set for the sizes and times that users reported, on the real stack: minutes instead of seconds.
var long = os.Getenv("ORBIT_LONG") != ""

func background(t *testing.T, run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// B1: a handler that takes one and a half leases, two consumers, three attempts. With extensions one handler
// runs once; without, the receiver's own record makes it one effect, and the acknowledgement counts however
// late, so that nothing ends EXPIRED.
func TestHandlerSlowerThanItsLease(t *testing.T) {
	t.Parallel()
	for name, basic := range map[string]bool{"extended": false, "basic": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, lease := orbittest.NewFake(t, orbittest.FakeOptions{DeliveryLease: 2 * time.Second}).Endpoint, 2*time.Second
			if long {
				e, lease = stack.Namespace(t), 30*time.Second
			}
			queue := e.NewQueue(t)
			sub := e.NewSubscription(t, queue, func(r *orbit.CreateSubscriptionRequest) { r.MaxAttempts = 3 })
			e.Results(t, queue, `1`)
			var starts, effects atomic.Int32
			acked := make(chan orbit.AckResult, 2)
			for range 2 {
				background(t, orbit.Consumer{URL: e.GatewayURL, Token: e.Token, SubscriptionID: sub, Basic: basic, DrainTimeout: time.Millisecond,
					Handler: func(context.Context, *orbit.Delivery) error {
						if effects.Load() > 0 {
							return nil // the inbox has it
						}
						starts.Add(1)
						time.Sleep(lease * 3 / 2)
						effects.CompareAndSwap(0, 1)
						return nil
					},
					OnAck: func(a orbit.AckResult) { acked <- a },
				}.Run)
			}
			select {
			case <-acked:
			case <-time.After(5*lease + time.Minute):
				t.Fatal("never acknowledged")
			}
			page := must[*orbit.Page[orbit.EventDelivery]](t)(e.Client(t).ListEventDeliveries(t.Context(), sub, orbit.ListEventDeliveriesRequest{}))
			d := page.Items[0]
			t.Logf("%d handlers, %d attempts, epoch %s", starts.Load(), d.Attempts, d.LeaseEpoch)
			if d.State != orbit.DeliveryAcked || effects.Load() != 1 {
				t.Errorf("delivery %+v, %d effects", d, effects.Load())
			}
			if !basic && (starts.Load() != 1 || d.Attempts != 1) {
				t.Errorf("%d handlers ran in %d attempts", starts.Load(), d.Attempts)
			}
			if basic && d.Attempts < 2 {
				t.Errorf("%d attempts: the handler was not slower than its lease", d.Attempts)
			}
		})
	}
}

// B3: one handler at a time and a backlog that takes several leases: no delivery waits in the client until
// its lease is gone, even without extensions.
func TestNoBufferEatsTheLease(t *testing.T) {
	t.Parallel()
	const backlog = 100
	e, lease, work := orbittest.NewFake(t, orbittest.FakeOptions{DeliveryLease: 2 * time.Second}).Endpoint, 2*time.Second, 50*time.Millisecond
	if long {
		e, lease, work = stack.Namespace(t), 30*time.Second, time.Second
	}
	queue := e.NewQueue(t)
	sub := e.NewSubscription(t, queue, nil)
	inputs := make([]string, backlog)
	for i := range inputs {
		inputs[i] = fmt.Sprint(i)
	}
	e.Results(t, queue, inputs...)
	ctx, stop := context.WithTimeout(t.Context(), backlog*work+10*lease+time.Minute)
	defer stop()
	handled, acks := map[string]int{}, 0
	err := orbit.Consumer{URL: e.GatewayURL, Token: e.Token, SubscriptionID: sub, Basic: true,
		Handler: func(_ context.Context, d *orbit.Delivery) error {
			handled[d.ID]++ // one at a time
			time.Sleep(work)
			return nil
		},
		OnAck: func(orbit.AckResult) {
			if acks++; acks == backlog {
				stop()
			}
		}}.Run(ctx)
	want(t, "Run", err, nil)
	for id, n := range handled {
		if n != 1 {
			t.Errorf("delivery %s was handled %d times", id, n)
		}
	}
	for d, err := range e.Client(t).AllEventDeliveries(t.Context(), sub, orbit.ListEventDeliveriesRequest{Limit: 100}) {
		if err != nil || d.State != orbit.DeliveryAcked || d.Attempts != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if len(handled) != backlog {
		t.Errorf("%d of %d were handled", len(handled), backlog)
	}
}

// SIGTERM finds 50 handlers running and 50 deliveries received: what finishes is acknowledged, what was not
// started is given back with its attempt refunded, nothing stays leased, Run ends in its limit.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	e := stack.Namespace(t)
	queue, client := e.NewQueue(t), e.Client(t)
	sub := e.NewSubscription(t, queue, func(r *orbit.CreateSubscriptionRequest) { r.MaxPending = 300 })
	inputs := make([]string, 200)
	for i := range inputs {
		inputs[i] = fmt.Sprint(i)
	}
	e.Results(t, queue, inputs...)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = childEnv("drain", "CHILD_URL="+e.GatewayURL, "CHILD_TOKEN="+e.Token, "CHILD_SUBSCRIPTION="+sub)
	cmd.Stderr = os.Stderr
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	list := func(state orbit.DeliveryState) (found []orbit.EventDelivery) {
		for d, err := range client.AllEventDeliveries(t.Context(), sub, orbit.ListEventDeliveriesRequest{State: state, Limit: 100}) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, d)
		}
		return found
	}
	said := map[string]int{}
	lines := bufio.NewScanner(out)
	for said["started"] < 50 && lines.Scan() {
		said[lines.Text()]++
	}
	orbittest.Await(t, "100 are out", func() bool { return len(list(orbit.DeliveryLeased)) == 100 })
	signalled := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		said[lines.Text()]++
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the consumers ended with %v", err)
	}
	if took := time.Since(signalled); took > 17*time.Second {
		t.Errorf("it took %s, the limit was 15 s and a second", took)
	}
	states, refunded := map[string]int{}, 0
	for _, d := range list("") {
		states[d.State]++
		if d.State != orbit.DeliveryAcked && d.Attempts != 0 {
			t.Errorf("a clean stop cost an attempt: %+v", d)
		}
		if d.State == orbit.DeliveryPending && d.LeaseEpoch == "1" {
			refunded++
		}
	}
	if said["started"] != 50 || said["finished"] != 50 || states[orbit.DeliveryAcked] != 50 || states[orbit.DeliveryPending] != 150 || refunded != 50 {
		t.Errorf("said %v, states %v, %d given back", said, states, refunded)
	}
}

// D5: a revoked secret closes its connections within 2 s with a code that says not to return; a rotation with
// overlap keeps subscription and deliveries.
func TestRevokedCredential(t *testing.T) {
	t.Parallel()
	e := stack.Namespace(t)
	queue := e.NewQueue(t)
	sub := e.NewSubscription(t, queue, nil)
	connected := make(chan orbit.EventWelcome, 2)
	acked := make(chan orbit.AckResult, 16)
	run := func(token string) <-chan error {
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		go func() {
			ended <- orbit.Consumer{URL: e.GatewayURL, Token: token, SubscriptionID: sub,
				Handler:   func(context.Context, *orbit.Delivery) error { return nil },
				OnConnect: func(w orbit.EventWelcome) { connected <- w },
				OnAck:     func(a orbit.AckResult) { acked <- a }}.Run(ctx)
		}()
		<-connected
		return ended
	}
	old := run(e.Token)
	var added struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal([]byte(stack.Admin(t, "secret", "add", e.CredentialID(), "--output", "json")), &added); err != nil {
		t.Fatal(err)
	}
	rotated := run(added.Token)
	stack.Admin(t, "secret", "revoke", e.CredentialID(), fingerprint(t, e))
	began := time.Now()
	select {
	case err := <-old:
		var stopped *orbit.StopError
		var closed *orbit.CloseError
		if !errors.As(err, &stopped) || !errors.Is(err, orbit.ErrUnauthenticated) || !errors.As(err, &closed) || closed.Code != orbit.CloseUnauthenticated {
			t.Errorf("the revoked one ended with %v", err)
		}
		t.Logf("closed %s after the revocation", time.Since(began).Round(time.Millisecond))
	case <-time.After(patience):
		t.Fatal("the revoked one is still connected")
	}
	e.Token = added.Token
	e.Results(t, queue, `1`)
	select {
	case <-acked:
	case err := <-rotated:
		t.Errorf("the rotated one ended with %v", err)
	case <-time.After(patience):
		t.Error("the rotated one receives nothing")
	}
}

const patience = time.Minute

// fingerprint is that of the older secret of the endpoint's credential.
func fingerprint(t *testing.T, e orbittest.Endpoint) string {
	t.Helper()
	var namespaces []struct{ Name string }
	if err := json.Unmarshal([]byte(stack.Admin(t, "namespace", "list", "--output", "json")), &namespaces); err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces {
		var credentials []struct {
			ID      string
			Secrets []struct {
				Fingerprint string
				CreatedAt   time.Time `json:"created_at"`
			}
		}
		if err := json.Unmarshal([]byte(stack.Admin(t, "credential", "list", "--namespace", n.Name, "--output", "json")), &credentials); err != nil {
			t.Fatal(err)
		}
		for _, c := range credentials {
			if c.ID == e.CredentialID() && len(c.Secrets) == 2 {
				if c.Secrets[0].CreatedAt.Before(c.Secrets[1].CreatedAt) {
					return c.Secrets[0].Fingerprint
				}
				return c.Secrets[1].Fingerprint
			}
		}
	}
	t.Fatal("the credential has not two secrets")
	return ""
}
