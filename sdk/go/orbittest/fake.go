package orbittest

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// FakeOptions tune a Fake; the zero value behaves as a real Orbit does.
type FakeOptions struct {
	DeliveryLease time.Duration // of an event delivery (0: 30 s)
	Heartbeat     time.Duration // what welcome asks of clients (0: 15 s)
}

// Fake is an Orbit in memory, for one namespace and one credential. Its methods may be called from many
// goroutines.
type Fake struct {
	Endpoint

	options      FakeOptions
	credentialID string
	listener     net.Listener
	server       *http.Server
	stop         chan struct{}
	running      sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	revoked  bool
	away     int // HTTP requests still to be refused
	losing   int // event.ack answers still to be lost
	state    state
	conns    map[*conn]bool
	receipts map[string]receipt
}

// NewFake starts a fake that ends with the test.
func NewFake(tb testing.TB, o FakeOptions) *Fake {
	tb.Helper()
	f, err := OpenFake(o)
	if err != nil {
		tb.Fatalf("orbittest: %v", err)
	}
	tb.Cleanup(f.Close)
	return f
}

// OpenFake starts a fake on a loopback port. Close ends it.
func OpenFake(o FakeOptions) (*Fake, error) {
	if o.DeliveryLease <= 0 {
		o.DeliveryLease = 30 * time.Second
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 15 * time.Second
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &Fake{options: o, credentialID: orbit.NewID(), listener: listener, stop: make(chan struct{}), conns: map[*conn]bool{}, receipts: map[string]receipt{}}
	f.state = newState()
	url := "http://" + listener.Addr().String()
	f.Endpoint = Endpoint{ManagementURL: url, GatewayURL: url, Token: "orbit_" + f.credentialID + "_" + newSecret()}
	f.QueueID = f.state.addQueue(orbit.Queue{Name: "default", LeaseDurationMS: 30000}, now()).ID
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: 5 * time.Second}
	f.running.Add(2)
	go func() {
		defer f.running.Done()
		_ = f.server.Serve(listener) // ends with Close
	}()
	go func() {
		defer f.running.Done()
		f.watch()
	}()
	return f, nil
}

// Close ends the fake and every connection to it.
func (f *Fake) Close() {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.stop)
	}
	_ = f.server.Close() // it does not know the sockets
	for c := range f.conns {
		_ = c.ws.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// watch notices what only time changes: leases that lapse, delays that end.
func (f *Fake) watch() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
			f.mu.Lock()
			f.pump()
			f.mu.Unlock()
		}
	}
}

// Disconnect closes every connection with a code, such as orbit.CloseServiceRestart; 1006 cuts them without
// a word. Clients may come back at once.
func (f *Fake) Disconnect(code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if code == orbit.CloseAbnormal {
			_ = c.ws.Close()
			continue
		}
		c.bye(code, map[int]string{orbit.CloseServiceRestart: "service restart", orbit.CloseTryAgainLater: "try again later"}[code])
	}
}

// Unavailable refuses the next n HTTP requests with 503 UNAVAILABLE.
func (f *Fake) Unavailable(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = n
}

// LoseAcks records the next n acknowledgements and cuts the connection instead of answering: the client
// cannot know, must report again, and is told that it is a repetition.
func (f *Fake) LoseAcks(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.losing = n
}

// LapseLeases ends the lease of every delivery that is out now, as if their time had passed.
func (f *Fake) LapseLeases() {
	f.mu.Lock()
	defer f.mu.Unlock()
	past := now().Add(-time.Second)
	for _, s := range f.state.subscriptions {
		for _, d := range s.open {
			if d.State == orbit.DeliveryLeased {
				d.LeaseUntil = &past
			}
		}
	}
	f.pump()
}

// Revoke takes the credential away: HTTP answers 401, connections close with a code that says not to return.
func (f *Fake) Revoke() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoked = true
	for c := range f.conns {
		c.refuse("", &orbit.Error{Code: orbit.ErrUnauthenticated, Message: "the credential or its secret was revoked"})
	}
}

// Connections is how many sockets are open.
func (f *Fake) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}
