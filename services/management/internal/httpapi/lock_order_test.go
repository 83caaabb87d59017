package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// TestLockOrder plays every write at random against one namespace, through two management services and
// the transactions of three gateways, with the operator and the sweeps in between. A deadlock may cost a
// retry, which is counted; none reaches a client, and nothing fails but what the contract lets fail.
// Afterwards the database is held against the invariants. ORBIT_LOCK_ORDER=5m is the full length.
func TestLockOrder(t *testing.T) {
	t.Parallel()
	length := 4 * time.Second
	if text := os.Getenv("ORBIT_LOCK_ORDER"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	for range 3 {
		w.createQueue()
	}
	end, limit := time.Now().Add(length), time.Now().Add(length+time.Minute)
	var actors sync.WaitGroup
	for range 12 {
		actors.Go(func() {
			for now := time.Now(); (now.Before(end) || now.Before(limit) && !w.retiredBoth()) && !t.Failed(); now = time.Now() {
				w.act()
			}
		})
	}
	actors.Wait()
	w.check()
}

// world is what the actors share: what exists, as far as they know.
type world struct {
	t           *testing.T
	db          *storetest.DB
	tenant      storetest.Tenant
	managements []*httptest.Server
	gateways    []*store.Store
	stores      []*store.Store
	client      *http.Client
	moves       []move
	weight      int

	mu          sync.Mutex
	queues      []*worldQueue
	subs        []worldSub
	tasks       []ids.ID
	running     []held[task.Proof]
	leased      []held[delivery.Proof]
	expired     []held[ids.ID]
	schedules   []held[ids.ID]
	flows, runs []ids.ID
	outcomes    map[string]int
}

type worldQueue struct {
	id      ids.ID
	closing bool // nothing new, so that it can retire
}

type worldSub struct {
	id    ids.ID
	queue *worldQueue
}

// held is something of a queue or subscription.
type held[T any] struct {
	of   ids.ID
	what T
}

type move struct {
	name   string
	weight int
	do     func() string // what came of it
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := storetest.New(t)
	w := &world{t: t, db: db, tenant: db.Tenant(t), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}, outcomes: map[string]int{}}
	t.Cleanup(w.client.CloseIdleConnections)
	for i := range 5 {
		dsn := db.GatewayDSN
		if i < 2 {
			dsn = db.ManagementDSN
		}
		s, err := store.Open(dsn, store.Pool{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		w.stores = append(w.stores, s)
		if i >= 2 {
			w.gateways = append(w.gateways, s)
			continue
		}
		server := httptest.NewServer(New(s, httpserver.NewHealth(context.Background(), s.Ping), zap.NewNop(), Options{Timeout: time.Minute}))
		t.Cleanup(server.Close)
		w.managements = append(w.managements, server)
	}
	w.stores = append(w.stores, db.Owner)
	w.moves = []move{
		{"create queue", 3, w.createQueue}, {"configure queue", 6, w.configureQueue}, {"retire queue", 10, w.retireQueue},
		{"subscribe", 5, w.subscribe}, {"configure subscription", 5, w.configureSubscription}, {"retire subscription", 12, w.retireSubscription},
		{"retry delivery", 6, w.retryDelivery},
		{"submit", 25, w.submit}, {"submit batch", 8, w.submitBatch}, {"cancel", 12, w.cancel}, {"resolve", 8, w.resolve},
		{"claim tasks", 25, w.claimTasks}, {"finish", 25, w.finish}, {"renew", 6, w.renew},
		{"claim deliveries", 25, w.claimDeliveries}, {"settle", 25, w.settle},
		{"sweep attempts", 3, w.sweepAttempts}, {"sweep receipts", 1, w.sweepReceipts}, {"quota", 2, w.quota}, {"grant", 2, w.grant},
		{"schedule", 3, w.addSchedule}, {"command schedule", 9, w.commandSchedule}, {"fire", 6, w.fire},
		{"flow", 2, w.addFlow}, {"start", 7, w.startRun}, {"run", 10, w.commandRun}, {"progress", 14, w.progress},
	}
	for _, m := range w.moves {
		w.weight += m.weight
	}
	return w
}

// retiredBoth: a slow machine gets a minute more to retire a queue and a subscription.
func (w *world) retiredBoth() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outcomes["retire queue: done"] > 0 && w.outcomes["retire subscription: done"] > 0
}

func (w *world) act() {
	n := rand.IntN(w.weight)
	for _, m := range w.moves {
		if n -= m.weight; n < 0 {
			outcome := m.name + ": " + m.do()
			w.mu.Lock()
			w.outcomes[outcome]++
			w.mu.Unlock()
			return
		}
	}
}

// call sends one write, or a GET without a body, to either service; 5xx ends the test.
func (w *world) call(method, path, body string) (data map[string]json.RawMessage, outcome string) {
	req, err := http.NewRequest(method, w.managements[rand.IntN(len(w.managements))].URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return nil, "broken"
	}
	req.Header.Set("Authorization", "Bearer "+w.tenant.Token)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", ids.New().String())
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Error(err)
		return nil, "broken"
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Error(err)
		return nil, "broken"
	}
	var envelope struct {
		Data  map[string]json.RawMessage `json:"data"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&envelope); err != nil {
		w.t.Errorf("%s %s: %d %s: %v", method, path, res.StatusCode, raw, err)
	}
	if res.StatusCode >= 400 {
		switch errs.Kind(envelope.Error.Code) {
		case errs.StateConflict, errs.ResourceBusy, errs.ResourceRetired, errs.SubscriptionLimit, errs.CapacityExceeded, errs.EventHistoryExpired:
		default:
			w.t.Errorf("%s %s %s: %d %s", method, path, body, res.StatusCode, raw)
		}
		return nil, envelope.Error.Code
	}
	return envelope.Data, "done"
}

// gateway is one of the three.
func (w *world) gateway() *store.Store { return w.gateways[rand.IntN(len(w.gateways))] }

func (w *world) judge(what string, err error, allowed ...errs.Kind) string {
	if err == nil {
		return "done"
	}
	for _, kind := range allowed {
		if errs.Is(err, kind) {
			return string(kind)
		}
	}
	w.t.Errorf("%s: %v", what, err)
	return "broken"
}

// textOf reads a string out of a resource.
func textOf(resource json.RawMessage, name string) string {
	var all map[string]any
	if err := json.Unmarshal(resource, &all); err != nil {
		return ""
	}
	text, _ := all[name].(string)
	return text
}

// anyOf picks one, and reports whether there is any.
func anyOf[T any](w *world, from *[]T) (one T, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(*from) == 0 {
		return one, false
	}
	return (*from)[rand.IntN(len(*from))], true
}

// takeOf removes what it picks.
func takeOf[T any](w *world, from *[]T) (one T, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(*from)
	if n == 0 {
		return one, false
	}
	i := rand.IntN(n)
	one = (*from)[i]
	(*from)[i] = (*from)[n-1]
	*from = (*from)[:n-1]
	return one, true
}

// forget takes what is retired off a list, mostly: the others must go on meeting some.
func forget[T comparable](w *world, from *[]T, what T, outcome string) {
	if outcome != string(errs.ResourceRetired) || rand.IntN(3) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, one := range *from {
		if one == what {
			*from = append((*from)[:i:i], (*from)[i+1:]...)
			return
		}
	}
}

func put[T any](w *world, to *[]T, what ...T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*to = append(*to, what...)
}

const (
	nothing  = "nothing to do it to"
	maxAlive = 4
)

// openQueue is mostly one that takes work; a closing one now and then, to be refused or to race.
func (w *world) openQueue() (*worldQueue, bool) {
	for range 20 {
		q, ok := anyOf(w, &w.queues)
		if !ok {
			return nil, false
		}
		w.mu.Lock()
		closing := q.closing
		w.mu.Unlock()
		if !closing || rand.IntN(20) == 0 {
			return q, true
		}
	}
	return nil, false
}

func (w *world) idFrom(data map[string]json.RawMessage, resource string) (ids.ID, bool) {
	id, err := ids.ParseID(textOf(data[resource], "id"))
	if err != nil {
		w.t.Errorf("%s: %v", data, err)
	}
	return id, err == nil
}

// createQueue makes one more and closes the oldest that is open, so that some always retire.
func (w *world) createQueue() string {
	data, outcome := w.call("POST", "/v1/queues", fmt.Sprintf(`{"name": "q-%s", "lease_duration_ms": 5000, "max_running": %d}`, ids.New(), rand.IntN(2)*8))
	if data == nil {
		return outcome
	}
	id, ok := w.idFrom(data, "queue")
	if !ok {
		return "broken"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = append(w.queues, &worldQueue{id: id})
	open := 0
	for i := len(w.queues) - 1; i >= 0; i-- {
		if w.queues[i].closing {
			continue
		}
		if open++; open > maxAlive {
			w.queues[i].closing = true
		}
	}
	return outcome
}
