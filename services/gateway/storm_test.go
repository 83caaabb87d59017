package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// C1: three gateways, 50 consumers, 100 submitters, workers, a sweep that deletes receipts and a
// management user that pauses and resumes, all on the same few rows. No deadlock reaches a client. The
// third gateway's database also gives up a transaction now and then, so that re-runs do happen; they
// are counted. Full size: ORBIT_SOAK_MINUTES=10.
func TestNoDeadlockReachesAClient(t *testing.T) {
	t.Parallel()
	const gateways, consumers, submitters, subscriptions = 3, 50, 100, 10
	length := 4 * time.Second
	if minutes := numberFromEnv(t, "ORBIT_SOAK_MINUTES", 0); minutes > 0 {
		length = time.Duration(minutes) * time.Minute
	}
	db := storetest.New(t)
	s := &storm{t: t, db: db, tenant: db.Tenant(t)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	unruly := db.NewProxy(t)
	nodes := []*node{startNode(t, db), startNode(t, db), startNodeOn(t, db, unruly.Store)}
	for range subscriptions {
		s.subs = append(s.subs, db.Subscribe(t, s.tenant, subscription.Create{MaxPending: 50}))
	}
	unruly.Decide(sometimesDeadlock)
	var sockets []*socket
	for i := range consumers {
		c := nodes[i%gateways].events(s.tenant.Token, s.subs[i%subscriptions], 8)
		sockets = append(sockets, c)
		go s.consume(c)
	}
	for _, n := range nodes {
		w := n.worker(s.tenant.Token, s.tenant.QueueID, 32)
		sockets = append(sockets, w)
		go s.work(w)
	}
	var busy sync.WaitGroup
	for range submitters {
		busy.Go(func() { s.submit(ctx) })
	}
	for range gateways {
		busy.Go(func() { s.sweep(ctx) })
	}
	busy.Go(func() { s.pause(ctx) })
	time.Sleep(length)
	cancel()
	busy.Wait()
	s.await()
	retries := [gateways]int64{}
	for i, n := range nodes {
		retries[i] = n.g.store.Retries()
	}
	if retries[gateways-1] == 0 {
		t.Error("no transaction was re-run")
	}
	s.over.Store(true)
	for _, c := range sockets {
		_ = c.ws.Close()
	}
	t.Logf("%s: %d tasks, %d deliveries acknowledged, %d receipts removed, transactions re-run: gateways %d, management %d",
		length, s.submitted.Load(), s.acked.Load(), s.swept.Load(), retries, db.Management.Retries())
}

// sometimesDeadlock has the database give up one in 200 of the statements that lock.
func sometimesDeadlock(query string) storetest.Fate {
	query = strings.TrimSpace(query)
	locks := strings.HasSuffix(query, "FOR UPDATE") || strings.HasPrefix(query, "UPDATE") || strings.HasPrefix(query, "INSERT") || strings.HasPrefix(query, "DELETE")
	if locks && rand.IntN(200) == 0 {
		return storetest.Deadlock
	}
	return storetest.Pass
}

type storm struct {
	t      *testing.T
	db     *storetest.DB
	tenant storetest.Tenant
	subs   []ids.ID

	submitted, acked, swept atomic.Int64
	over                    atomic.Bool
}

// lost reports a connection that ended before the storm was over.
func (s *storm) lost(what string, err error) {
	if !s.over.Load() {
		s.t.Errorf("%s ended: %v", what, err)
	}
}

func (s *storm) consume(c *socket) {
	for {
		f, err := c.read(6 * wait)
		switch {
		case err != nil:
			s.lost("a consumer", err)
			return
		case f.Error != nil:
			s.t.Errorf("a consumer got %+v", f.Error)
		case f.Type == "ack":
			s.acked.Add(1)
		case f.Type == "event.deliver":
			if err := c.ws.WriteMessage(websocket.TextMessage, []byte(c.ackText(decode[delivered](s.t, f.Body)))); err != nil {
				s.lost("a consumer", err)
				return
			}
		}
	}
}

func (s *storm) work(w *socket) {
	for {
		f, err := w.read(6 * wait)
		switch {
		case err != nil:
			s.lost("a worker", err)
			return
		case f.Error != nil:
			s.t.Errorf("a worker got %+v", f.Error)
		case f.Type == "task.assign":
			a := decode[struct {
				Attempt struct {
					ID    string `json:"id"`
					Epoch string `json:"epoch"`
				} `json:"attempt"`
				LeaseSecret string `json:"lease_secret"`
			}](s.t, f.Body)
			text := fmt.Sprintf(`{"protocol_version":"1","type":"attempt.complete","message_id":%q,"session_id":%q,"body":{"attempt_id":%q,"epoch":%q,"lease_secret":%q,"result":7}}`,
				ids.New(), w.session, a.Attempt.ID, a.Attempt.Epoch, a.LeaseSecret)
			if err := w.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
				s.lost("a worker", err)
				return
			}
		}
	}
}

// maxBacklog keeps a long storm from ending in a longer drain.
const maxBacklog = 1000

// submit is one application thread, four tasks a second at most.
func (s *storm) submit(ctx context.Context) {
	for ctx.Err() == nil {
		if s.submitted.Load()*int64(len(s.subs))-s.acked.Load() > maxBacklog {
			pauseFor(ctx, 20*time.Millisecond)
			continue
		}
		sub := task.Submit{QueueID: &s.tenant.QueueID, Input: strictjson.Raw(`{"n":1}`)}
		err := sub.Normalise()
		if err == nil {
			_, err = s.db.Management.SubmitTask(context.WithoutCancel(ctx), s.tenant.Write(), sub)
		}
		if err != nil {
			s.t.Errorf("submit: %v", err)
			return
		}
		s.submitted.Add(1)
		pauseFor(ctx, time.Duration(200+rand.IntN(100))*time.Millisecond)
	}
}

func (s *storm) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := s.db.Management.SweepReceipts(context.WithoutCancel(ctx), time.Second, 100)
		if err != nil {
			s.t.Errorf("sweep: %v", err)
			return
		}
		s.swept.Add(int64(n))
		pauseFor(ctx, 50*time.Millisecond)
	}
}

// pause pauses and resumes one subscription; it ends resumed.
func (s *storm) pause(ctx context.Context) {
	for revision := uint64(1); ctx.Err() == nil; revision += 2 {
		configure(s.t, s.db, s.tenant, s.subs[0], revision, false)
		pauseFor(ctx, 200*time.Millisecond)
		configure(s.t, s.db, s.tenant, s.subs[0], revision+1, true)
		pauseFor(ctx, 200*time.Millisecond)
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// await returns when every outcome has been delivered to every subscription and acknowledged.
func (s *storm) await() {
	s.t.Helper()
	want := int(s.submitted.Load())
	for deadline := time.Now().Add(18 * wait); ; time.Sleep(50 * time.Millisecond) {
		done := true
		var b backlog
		for _, sub := range s.subs {
			b = readBacklog(s.t, s.db, sub)
			if done = b.acked == want; !done {
				break
			}
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not all is delivered: %+v of %d", b, want)
		}
	}
}

// D4: one connection acknowledges as fast as it can; pings of others are answered within the time of a
// few of its acks, not behind them all.
func TestAFloodOfAcksDelaysNoPing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant, other := db.Tenant(t), db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	flooder := n.events(tenant.Token, sub, 1)
	quiet := n.events(other.Token, db.Subscribe(t, other, subscription.Create{}), 1)
	db.Outcome(t, tenant, `1`)
	d := flooder.delivery()
	neighbour := n.events(tenant.Token, sub, 1)
	var answered atomic.Int64
	ended := make(chan error, 2)
	go func() {
		for {
			f, err := flooder.read(wait)
			if err == nil && f.Error != nil {
				err = errors.New(f.Error.Code)
			}
			if err != nil {
				ended <- err
				return
			}
			answered.Add(1)
		}
	}()
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := flooder.ws.WriteMessage(websocket.TextMessage, []byte(flooder.ackText(d))); err != nil {
				ended <- err
				return
			}
		}
	}()
	for answered.Load() < 1000 {
		time.Sleep(time.Millisecond)
	}
	for name, s := range map[string]*socket{"another subscription": quiet, "the same subscription": neighbour} {
		var passed []int64
		for range 40 {
			before := answered.Load()
			s.ping()
			passed = append(passed, answered.Load()-before)
		}
		slices.Sort(passed)
		t.Logf("%s: %d acks went by during the median ping, %d during the slowest", name, passed[20], passed[39])
		if passed[20] > 1000 {
			t.Errorf("%s: %d acks were answered before the median ping", name, passed[20])
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = flooder.ws.Close()
	<-ended
}
