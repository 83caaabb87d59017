package orbittest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

// D1: ORBIT_D1_CONSUMERS consumers (1000 are the full size) behind a balancer over three gateways that are
// restarted in turn, while results come in: nobody is dark for over 60 s, nothing is lost.
func TestRollingRestartOfGateways(t *testing.T) {
	t.Parallel()
	consumers := 40
	if text := os.Getenv("ORBIT_D1_CONSUMERS"); text != "" {
		consumers = must[int](t)(strconv.Atoi(text))
	}
	const subscriptions = 20
	e := stack.Namespace(t)
	gateways := make([]*orbittest.Gateway, 3)
	for i := range gateways {
		gateways[i] = stack.StartGateway(t, "ORBIT_GATEWAY_EVENT_CONNS=2000", "ORBIT_GATEWAY_DRAIN_TIMEOUT=1s")
	}
	url := balance(t, gateways)
	queue := e.NewQueue(t)
	subs := make([]string, subscriptions)
	for i := range subs {
		subs[i] = e.NewSubscription(t, queue, nil)
	}
	var dark, connects atomic.Int64 // dark: the longest, in ns
	var mu sync.Mutex
	seen := make([]map[string]bool, subscriptions)
	for i := range seen {
		seen[i] = map[string]bool{}
	}
	up := make([]atomic.Bool, consumers)
	for i := range consumers {
		var down atomic.Int64
		down.Store(time.Now().UnixNano())
		background(t, orbit.Consumer{URL: url, Token: e.Token, SubscriptionID: subs[i%subscriptions], DrainTimeout: time.Second,
			Handler: func(_ context.Context, d *orbit.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				seen[i%subscriptions][d.Event.ID] = true
				return nil
			},
			OnConnect: func(orbit.EventWelcome) {
				connects.Add(1)
				up[i].Store(true)
				for gap := time.Now().UnixNano() - down.Load(); ; {
					if longest := dark.Load(); gap <= longest || dark.CompareAndSwap(longest, gap) {
						return
					}
				}
			},
			OnDisconnect: func(error) {
				if up[i].Swap(false) { // failed tries do not begin a new gap
					down.Store(time.Now().UnixNano())
				}
			}}.Run)
	}
	all := func() bool {
		for i := range up {
			if !up[i].Load() {
				return false
			}
		}
		return true
	}
	orbittest.Await(t, "all are connected", all)
	began := connects.Load()
	t.Logf("%d consumers connected, the slowest after %s", consumers, time.Duration(dark.Swap(0)).Round(time.Millisecond))
	const rounds = 4
	for i := range rounds {
		e.Results(t, queue, strings.Split(strings.Repeat("1,", 24)+"1", ",")...)
		if i < len(gateways) {
			gateways[i].Stop(t)
			gateways[i].Start(t)
		}
	}
	orbittest.Await(t, "all are connected again", all)
	orbittest.Await(t, "every subscription has every event", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range seen {
			if len(s) < 25*rounds {
				return false
			}
		}
		return true
	})
	client := e.Client(t)
	for _, sub := range subs {
		orbittest.Await(t, "all is acknowledged", func() bool {
			return must[*orbit.Subscription](t)(client.GetSubscription(t.Context(), sub)).PendingCount == 0
		})
	}
	t.Logf("%d reconnections, the longest gap was %s", connects.Load()-began, time.Duration(dark.Load()).Round(time.Millisecond))
	if connects.Load()-began < int64(consumers)/2 {
		t.Errorf("only %d consumers had to come back", connects.Load()-began)
	}
	if gap := time.Duration(dark.Load()); gap > time.Minute {
		t.Errorf("a consumer was dark for %s", gap)
	}
}

// balance spreads connections over the gateways that take them, as a balancer in front of them would.
func balance(t *testing.T, gateways []*orbittest.Gateway) (url string) {
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var turn atomic.Int64
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	serve := func(in net.Conn) {
		defer conns.Done()
		defer func() { _ = in.Close() }()
		for range gateways {
			g := gateways[int(turn.Add(1))%len(gateways)]
			out, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
			if err != nil {
				continue
			}
			defer func() { _ = out.Close() }()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.Close()
			}()
			_, _ = io.Copy(in, out)
			return
		}
	}
	conns.Add(1)
	go func() {
		defer conns.Done()
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go serve(in)
		}
	}()
	return fmt.Sprintf("http://%s", l.Addr())
}
