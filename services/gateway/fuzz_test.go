package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// fuzzHeapBound is how much more the heap may hold after the run than before it, after a collection.
const fuzzHeapBound = 4 << 20

// fuzzFor is ORBIT_FUZZ_MINUTES (10 for the whole run), or a few seconds.
func fuzzFor(t *testing.T) time.Duration {
	text := os.Getenv("ORBIT_FUZZ_MINUTES")
	if text == "" {
		return 3 * time.Second
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("ORBIT_FUZZ_MINUTES: want a number above 0, is %q", text)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// Random and mutated frames from many connections of both sockets at once: the gateway lives, never
// answers what the schema does not know, never closes with 1011, logs no error, leaks no goroutine and no
// memory, and a well-behaved session beside it notices nothing. It runs alone, so that what it measures is
// the gateway's. A failed run prints its seed; ORBIT_FUZZ_SEED repeats its choices.
func TestFuzzFrames(t *testing.T) {
	length := fuzzFor(t)
	f := newFuzz(t)
	before := heapInUse()
	w := f.watch()
	end := time.Now().Add(length)
	var attackers sync.WaitGroup
	for i := range 24 {
		attackers.Go(func() {
			a := &attacker{fuzz: f, rnd: rand.New(rand.NewPCG(f.seed, uint64(i))), tenant: i % len(f.tenants)}
			for !t.Failed() && (time.Now().Before(end) || !f.touched() && time.Now().Before(end.Add(2*time.Minute))) {
				a.attack()
			}
		})
	}
	for minute := time.Now().Add(time.Minute); minute.Before(end) && !t.Failed(); minute = minute.Add(time.Minute) {
		time.Sleep(time.Until(minute))
		t.Logf("heap %d KiB (with %d connections open), %d frames sent", heapInUse()>>10, f.open(), f.sent.Load())
	}
	attackers.Wait()
	pings, slowest := w.stop()
	f.settled()
	after := heapInUse()
	t.Logf("%s, seed %d: %d connections, %d frames sent, %d received %v; %d pings beside, slowest %s; heap %d KiB before, %d KiB after",
		length, f.seed, f.conns.Load(), f.sent.Load(), f.received.Load(), f.counts, pings, slowest.Round(time.Millisecond), before>>10, after>>10)
	if after > before+fuzzHeapBound {
		t.Errorf("the heap grew from %d to %d KiB", before>>10, after>>10)
	}
	if !f.touched() {
		t.Error("the run hardly touched the gateway")
	}
	f.node.events(f.quiet.Token, f.quietSub, 1).ping() // a well-behaved session still works
	f.stop()
}

type fuzz struct {
	t        *testing.T
	seed     uint64
	node     *node
	store    *store.Store
	tenants  []storetest.Tenant
	subs     []ids.ID
	quiet    storetest.Tenant
	quietSub ids.ID
	corpus   []string // every golden text
	commands []string // those that a welcomed client may send
	log      *observer.ObservedLogs
	leaks    []goleak.Option

	conns, sent, received atomic.Int64
	mu                    sync.Mutex
	counts                map[string]int // of received frames by type or error, and of closes by code
}

func newFuzz(t *testing.T) *fuzz {
	f := &fuzz{t: t, seed: rand.Uint64(), counts: map[string]int{}}
	if text := os.Getenv("ORBIT_FUZZ_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("ORBIT_FUZZ_SEED: %v", err)
		}
		f.seed = seed
	}
	for _, e := range goldenExchanges(t) {
		for _, step := range e.Steps {
			for _, text := range []string{string(step.Client), step.ClientText, string(step.Server)} {
				if text != "" {
					f.corpus = append(f.corpus, text)
				}
			}
			if step.Client != nil && bytes.Contains(step.Client, []byte(goldenSession)) {
				f.commands = append(f.commands, string(step.Client))
			}
		}
	}
	slices.Sort(f.corpus)
	f.corpus = slices.Compact(f.corpus)
	db := storetest.New(t)
	for range 3 {
		tenant := db.Tenant(t)
		db.AppendEvents(t, tenant, 2000, `{"a":[1,2,3]}`)
		db.QueueTasks(t, tenant, 2000)
		f.tenants = append(f.tenants, tenant)
		f.subs = append(f.subs, db.Subscribe(t, tenant, subscription.Create{FromSequence: new(ids.Counter), MaxPending: 1000, MaxAttempts: 100}))
	}
	f.quiet = db.Tenant(t)
	f.quietSub = db.Subscribe(t, f.quiet, subscription.Create{})
	f.leaks = []goleak.Option{ // the test's own pools stay open; the gateway's is closed before the look
		goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1"),
	}
	var err error
	if f.store, err = store.Open(db.GatewayDSN, store.Pool{}); err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	f.log = logs
	f.node = startNodeLogging(t, db, f.store, zap.New(core), func(c *config) {
		c.EventConns, c.WorkerConns, c.WriteTimeout = 1000, 1000, time.Second
	})
	warm := f.node.events(f.quiet.Token, f.quietSub, 1) // pools and caches are filled before anything is measured
	warm.ping()
	_ = warm.ws.Close()
	return f
}

func (f *fuzz) open() int { return f.node.g.eventDoor.Open() + f.node.g.workDoor.Open() }

// settled waits until the attackers' connections have ended.
func (f *fuzz) settled() {
	for deadline := time.Now().Add(2 * wait); f.open() > 0; {
		if time.Now().After(deadline) {
			f.t.Fatalf("%d connections never ended", f.open())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stop ends the gateway and looks at what it leaves behind.
func (f *fuzz) stop() {
	if err := f.node.stop(); err != nil {
		f.t.Error(err)
	}
	if err := f.store.Close(); err != nil {
		f.t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(f.leaks...); err != nil {
		f.t.Error(err)
	}
	for _, entry := range f.log.FilterLevelExact(zap.ErrorLevel).All() {
		f.t.Errorf("logged: %s %v", entry.Message, entry.ContextMap())
	}
	if lines := f.log.Len(); lines > 10 {
		f.t.Errorf("%d lines were logged at info", lines)
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	for range 2 { // the second empties what sync.Pools held over the first
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// touched reports that the frames got everywhere; on a busy machine that may take longer than asked.
func (f *fuzz) touched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range []string{"1008", "ack", "INVALID_ARGUMENT", "event.deliver", "task.assign"} {
		if f.counts[what] == 0 {
			return false
		}
	}
	return true
}

func (f *fuzz) counted(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what]++
}

// witness is a session that keeps every rule.
type witness struct {
	done chan struct{}
	over sync.WaitGroup

	pings   int
	slowest time.Duration
}

func (f *fuzz) watch() *witness {
	w := &witness{done: make(chan struct{})}
	s := f.node.events(f.quiet.Token, f.quietSub, 1)
	w.over.Go(func() {
		defer s.ws.Close()
		for {
			select {
			case <-w.done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			began := time.Now()
			text := fmt.Sprintf(`{"protocol_version":"1","type":"events.ping","message_id":"%s","session_id":"%s","body":{}}`, ids.New(), s.session)
			err := s.ws.WriteMessage(websocket.TextMessage, []byte(text))
			if err == nil {
				var answer frame
				if answer, err = s.read(wait); err == nil && answer.Type != "ack" {
					err = fmt.Errorf("%+v", answer)
				}
			}
			if err != nil {
				f.t.Errorf("seed %d: the well-behaved session: %v", f.seed, err)
				return
			}
			w.pings++
			w.slowest = max(w.slowest, time.Since(began))
		}
	})
	return w
}

func (w *witness) stop() (pings int, slowest time.Duration) {
	close(w.done)
	w.over.Wait()
	return w.pings, w.slowest
}

// workerCommands are the worker socket's, with the placeholders of the golden exchanges.
var workerCommands = func() (out []string) {
	const proof = `"attempt_id":"33333333333333333333333333333333","epoch":"1","lease_secret":"` + zeroSecret + `"`
	for frameType, body := range map[string]string{
		"attempt.complete":  proof + `,"result":{"a":[1,2.50,"x"]}`,
		"attempt.fail":      proof + `,"error":{"code":"E","message":"m"},"retryable":true,"retry_after_ms":0`,
		"attempt.cancelled": proof,
		"attempt.release":   proof,
		"attempts.renew":    `"attempts":[{` + proof + `},{` + proof + `}]`,
		"worker.ping":       ``,
		"worker.hello":      `"queue_id":"` + goldenQueue + `","name":"w","capacity":1`,
	} {
		out = append(out, `{"protocol_version":"1","type":"`+frameType+`","message_id":"`+anID+`","session_id":"`+goldenSession+`","body":{`+body+`}}`)
	}
	slices.Sort(out)
	return out
}()

// attacker is one client of ill will.
type attacker struct {
	*fuzz
	rnd    *rand.Rand
	tenant int
	gentle bool // this connection damages bodies only
	worker bool // and is the worker socket's

	known sync.Mutex
	bound map[string]string // the golden values' stand-ins: session, delivery, proof
}

// attack is one connection from dial to end.
func (a *attacker) attack() {
	a.conns.Add(1)
	if a.rnd.IntN(20) == 0 {
		a.attackUpgrade()
		return
	}
	dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}, HandshakeTimeout: wait}
	path := "/v1/events/connect"
	if a.worker = a.rnd.IntN(4) == 0; a.worker {
		path, dialer.Subprotocols = "/v1/workers/connect", []string{"orbit.workers.v1"}
	}
	ws, _, err := dialer.Dial(a.node.url+path, http.Header{"Authorization": {"Bearer " + a.tenants[a.tenant].Token}})
	if err != nil {
		a.t.Errorf("seed %d: dial: %v", a.seed, err)
		return
	}
	defer ws.Close()
	a.gentle = a.rnd.IntN(3) > 0
	a.bound = map[string]string{goldenSubscription: a.subs[a.tenant].String(), goldenQueue: a.tenants[a.tenant].QueueID.String()}
	welcomed, over := make(chan struct{}), make(chan struct{})
	if a.rnd.IntN(50) > 0 { // else it reads nothing until it goes
		go a.read(ws, welcomed, over)
	} else {
		close(over)
	}
	if a.rnd.IntN(8) > 0 {
		hello := fmt.Sprintf(`{"protocol_version":"1","type":"events.hello","message_id":"%s","body":{"subscription_id":"%s","capacity":%d,"extensions":["generation"]}}`,
			ids.New(), a.subs[a.tenant], 1+a.rnd.IntN(32))
		if a.worker {
			hello = fmt.Sprintf(`{"protocol_version":"1","type":"worker.hello","message_id":"%s","body":{"queue_id":"%s","name":"w","capacity":%d}}`,
				ids.New(), a.tenants[a.tenant].QueueID, 1+a.rnd.IntN(32))
		}
		_ = ws.WriteMessage(websocket.TextMessage, []byte(hello))
		select {
		case <-welcomed:
		case <-over:
		case <-time.After(wait):
			a.t.Errorf("seed %d: no welcome", a.seed)
		}
	}
	for range a.rnd.IntN(60) {
		_ = ws.SetWriteDeadline(time.Now().Add(wait))
		if a.write(ws) != nil {
			break
		}
		a.sent.Add(1)
		if a.gentle {
			time.Sleep(time.Duration(a.rnd.IntN(3000)) * time.Microsecond)
		}
	}
	switch a.rnd.IntN(3) {
	case 0: // vanishes
	case 1: // says goodbye
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
		fallthrough
	case 2: // waits to be closed
		select {
		case <-over:
		case <-time.After(time.Duration(a.rnd.IntN(300)) * time.Millisecond):
		}
	}
	_ = ws.Close()
	<-over
}

// read takes whatever comes, remembers what an ack needs, and checks it against the schema.
func (a *attacker) read(ws *websocket.Conn, welcomed, over chan struct{}) {
	defer close(over)
	for {
		_, data, err := ws.ReadMessage()
		if err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				a.counted(fmt.Sprint(closed.Code))
				if !slices.Contains([]int{1000, 1002, 1006, 1007, 1008, 1009, 4404}, closed.Code) {
					a.t.Errorf("seed %d: closed with %d %q", a.seed, closed.Code, closed.Text)
				}
			}
			return
		}
		if n := a.received.Add(1); !a.worker && (n%16 == 0 || n < 1000) {
			if err := describes(a.t, eventFrames, "serverFrame", data); err != nil {
				a.t.Errorf("seed %d: received %s: %v", a.seed, data, err)
			}
		}
		f := decode[frame](a.t, data)
		if f.Error != nil {
			a.counted(f.Error.Code)
		} else {
			a.counted(f.Type)
		}
		a.known.Lock()
		switch f.Type {
		case "events.welcome", "worker.welcome":
			a.bound[goldenSession] = f.SessionID
			close(welcomed)
		case "event.deliver":
			d := decode[delivered](a.t, f.Body)
			a.bound["33333333333333333333333333333333"], a.bound[zeroSecret] = d.Delivery.ID, d.LeaseSecret
		case "task.assign":
			d := decode[assigned](a.t, f.Body)
			a.bound["33333333333333333333333333333333"], a.bound[zeroSecret] = d.Attempt.ID, d.LeaseSecret
		}
		a.known.Unlock()
	}
}

// write sends one message of some kind.
func (a *attacker) write(ws *websocket.Conn) error {
	text := a.frame()
	kind := a.rnd.IntN(200)
	if a.gentle && kind < 3 {
		kind = 6
	}
	switch kind {
	case 0:
		return ws.WriteMessage(websocket.BinaryMessage, text)
	case 1: // not even a WebSocket frame
		_, err := ws.NetConn().Write(randomBytes(a.rnd, 1+a.rnd.IntN(300)))
		return err
	case 2: // a frame that ends in mid-air
		return a.fragment(ws, text, false)
	case 3, 4, 5:
		return a.fragment(ws, text, true)
	case 6:
		return ws.WriteControl(websocket.PingMessage, text[:min(len(text), 125)], time.Now().Add(time.Second))
	case 7:
		return ws.WriteMessage(websocket.TextMessage, randomBytes(a.rnd, a.rnd.IntN(2000)))
	}
	return ws.WriteMessage(websocket.TextMessage, text)
}

// fragment sends one message as several WebSocket frames.
func (a *attacker) fragment(ws *websocket.Conn, text []byte, whole bool) error {
	w, err := ws.NextWriter(websocket.TextMessage)
	if err != nil {
		return err
	}
	for len(text) > 0 {
		n := min(len(text), 1+a.rnd.IntN(8000))
		if _, err := w.Write(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	if !whole {
		return errors.New("given up in mid-air")
	}
	return w.Close()
}

// attackUpgrade sends a damaged upgrade request.
func (a *attacker) attackUpgrade() {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(a.node.url, "ws://"), wait)
	if err != nil {
		a.t.Errorf("seed %d: dial: %v", a.seed, err)
		return
	}
	defer conn.Close()
	request := "GET /v1/events/connect HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.tenants[a.tenant].Token +
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: orbit.events.v1\r\n\r\n"
	text := []byte(request)
	for range a.rnd.IntN(4) {
		text = mutations[a.rnd.IntN(len(mutations))](a.rnd, text, []byte(request))
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(text[:min(len(text), 100_000)])
	_, _ = conn.Read(make([]byte, 4096))
}

// frame is a golden frame with this connection's values, mostly mutated.
func (a *attacker) frame() []byte {
	corpus := a.corpus
	switch {
	case a.worker:
		corpus = workerCommands
	case a.gentle:
		corpus = a.commands
	}
	pick := func() string { return corpus[a.rnd.IntN(len(corpus))] }
	a.known.Lock()
	fill := func(text string) []byte {
		if a.rnd.IntN(10) == 0 && !a.gentle {
			return []byte(text)
		}
		return []byte(placeholder.ReplaceAllStringFunc(text, func(p string) string {
			name := strings.Trim(p, `"`)
			if value := a.bound[name]; value != "" {
				return strings.Replace(p, name, value, 1)
			}
			return p
		}))
	}
	text, other := fill(pick()), fill(pick())
	a.known.Unlock()
	if at := bytes.Index(text, []byte(`"body"`)); at > 0 && a.gentle { // what leaves the envelope good gets further
		body := text[at+len(`"body"`):]
		for range a.rnd.IntN(3) {
			body = bodyMutations[a.rnd.IntN(len(bodyMutations))](a.rnd, body, nil)
		}
		return slices.Concat(text[:at], []byte(`"body"`), body)
	}
	for range a.rnd.IntN(4) {
		text = mutations[a.rnd.IntN(len(mutations))](a.rnd, text, other)
	}
	return text
}
