package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// modelDelivery is what a consumer knows of one delivery.
type modelDelivery struct {
	id       ids.ID
	sequence uint64
	state    delivery.State
	revision ids.Counter
	epoch    ids.Counter
	attempts int
	budget   int
	session  ids.ID
	lapsed   bool             // LEASED, but its time is over and no turn has noticed yet
	delayed  bool             // PENDING, but not yet available
	proofs   []delivery.Proof // by epoch, first is epoch 1
}

func (d *modelDelivery) move(to delivery.State) {
	d.state, d.lapsed = to, false
	d.revision++
}

// giveUp ends a lease without an ack.
func (d *modelDelivery) giveUp() {
	if d.attempts >= d.budget {
		d.move(delivery.Expired)
		return
	}
	d.move(delivery.Pending)
}

// deliveryModel plays §6.4–6.5 in memory: several sessions that come and go, lapses, pauses, manual
// retries, releases, extends, late acks.
type deliveryModel struct {
	t          *testing.T // for what only breaks when the database does
	db         *storetest.DB
	tenant     storetest.Tenant
	sub        ids.ID
	revision   ids.Counter // of the subscription
	enabled    bool
	maxPending int
	budget     int
	head       int
	cursor     int
	rows       []*modelDelivery
	sessions   []store.SessionWant
	joined     func(t *rapid.T) // plays the turn that shared the last settlement's transaction
}

func (m *deliveryModel) pending() int {
	n := 0
	for _, d := range m.rows {
		if d.state != delivery.Acked {
			n++
		}
	}
	return n
}

func (m *deliveryModel) append(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "events")
	m.db.AppendEvents(m.t, m.tenant, n, `1`)
	m.head += n
}

// claim is a turn of a node that has some of the sessions.
func (m *deliveryModel) claim(t *rapid.T) {
	wants := m.here(t)
	turn, err := m.db.Gateway.ClaimDeliveries(context.Background(), m.tenant.NamespaceID, m.sub, wants)
	if err != nil {
		t.Fatal(err)
	}
	m.played(t, wants, turn)
}

func (m *deliveryModel) here(t *rapid.T) []store.SessionWant {
	var wants []store.SessionWant
	for _, s := range m.sessions {
		if rapid.Bool().Draw(t, "here") {
			wants = append(wants, s)
		}
	}
	return wants
}

// played compares a turn with the model's.
func (m *deliveryModel) played(t *rapid.T, wants []store.SessionWant, turn store.Turn) {
	held := map[ids.ID]int{}
	want := m.turn(wants, held)
	if len(turn.Claimed) != len(want) || turn.Enabled != m.enabled {
		t.Fatalf("claimed %d, enabled %v, the model %d, %v", len(turn.Claimed), turn.Enabled, len(want), m.enabled)
	}
	capacity := map[ids.ID]int{}
	for _, w := range wants {
		capacity[w.SessionID] = w.Capacity
	}
	for i, c := range turn.Claimed {
		d := want[i]
		d.move(delivery.Leased)
		d.id, d.epoch, d.attempts, d.session = c.Delivery.ID, d.epoch+1, d.attempts+1, c.SessionID
		d.proofs = append(d.proofs, delivery.Proof{DeliveryID: d.id, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()})
		if uint64(c.Delivery.Sequence) != d.sequence || c.Delivery.LeaseEpoch != d.epoch || c.Delivery.Attempts != d.attempts || c.Delivery.Revision != d.revision {
			t.Fatalf("claimed %+v, the model %+v", c.Delivery, d)
		}
		if held[d.session]++; held[d.session] > capacity[d.session] {
			t.Fatalf("session %s holds %d of %d", d.session, held[d.session], capacity[d.session])
		}
	}
	for _, d := range m.rows { // what this turn leaves to time must be known to whoever waits for it
		if m.enabled && d.state == delivery.Leased && turn.NextDue == nil {
			t.Fatalf("delivery %d is leased and no next due time was given", d.sequence)
		}
	}
}

// turn plays a claim turn up to the leases and returns what is to be leased; held counts live leases.
func (m *deliveryModel) turn(wants []store.SessionWant, held map[ids.ID]int) []*modelDelivery {
	if !m.enabled {
		return nil
	}
	for _, d := range m.rows {
		switch {
		case d.state == delivery.Leased && d.lapsed:
			d.giveUp()
		case d.state == delivery.Leased:
			held[d.session]++
		}
	}
	for m.pending() < m.maxPending && m.cursor < m.head {
		m.cursor++
		m.rows = append(m.rows, &modelDelivery{sequence: uint64(m.cursor), state: delivery.Pending, revision: 1, budget: m.budget})
	}
	free := 0
	for _, w := range wants {
		free += max(w.Capacity-held[w.SessionID], 0)
	}
	var out []*modelDelivery
	for _, d := range m.rows {
		if d.state == delivery.Pending && !d.delayed && len(out) < free {
			out = append(out, d)
		}
	}
	return out
}

// reconnect gives a session's place to a new one; the old one's leases stay (R6.8).
func (m *deliveryModel) reconnect(t *rapid.T) {
	m.sessions[rapid.IntRange(0, len(m.sessions)-1).Draw(t, "session")] = store.SessionWant{
		SessionID: ids.New(), Capacity: rapid.IntRange(1, 4).Draw(t, "capacity"),
	}
}

// lapse ends some leases by the database clock; the next turn will find out.
func (m *deliveryModel) lapse(t *rapid.T) {
	some := rapid.IntRange(1, 3).Draw(t, "every")
	for i, d := range m.rows {
		if d.state != delivery.Leased || i%some != 0 {
			continue
		}
		if _, err := m.db.SQL.Exec("UPDATE deliveries SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE subscription_id = ? AND sequence = ?", m.sub[:], d.sequence); err != nil {
			t.Fatal(err)
		}
		d.lapsed = true
	}
}

// mature ends all delays of releases.
func (m *deliveryModel) mature(t *rapid.T) {
	if _, err := m.db.SQL.Exec("UPDATE deliveries SET available_at = created_at WHERE subscription_id = ? AND state = 'PENDING'", m.sub[:]); err != nil {
		t.Fatal(err)
	}
	for _, d := range m.rows {
		d.delayed = false
	}
}

// configure pauses, resumes, or says again what already is.
func (m *deliveryModel) configure(t *rapid.T) {
	enabled, expected := rapid.Bool().Draw(t, "enabled"), m.revision
	_, err := m.db.Management.ConfigureSubscription(context.Background(), m.tenant.Write(), m.sub,
		subscription.Configure{ExpectedRevision: &expected, Enabled: &enabled, Reason: "model"})
	if err != nil {
		t.Fatal(err)
	}
	m.enabled = enabled
	m.revision++
}

// retry is a manual one (R5.7), of deliveries in any state.
func (m *deliveryModel) retry(t *rapid.T) {
	d := m.sent(t)
	if d == nil {
		return
	}
	expected, more := d.revision, rapid.IntRange(1, 3).Draw(t, "additional")
	_, err := m.db.Management.RetryDelivery(context.Background(), m.tenant.Write(), m.sub, d.id,
		delivery.Retry{ExpectedRevision: &expected, Reason: "model", AdditionalAttempts: more})
	if d.state != delivery.Expired {
		if !errs.Is(err, errs.StateConflict) {
			t.Fatalf("retry in state %s: %v", d.state, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	d.move(delivery.Pending)
	d.budget, d.delayed = d.budget+more, false
}

func (m *deliveryModel) ack(t *rapid.T) {
	d := m.sent(t)
	if d == nil {
		return
	}
	proof := rapid.SampledFrom(d.proofs).Draw(t, "proof")
	switch r := m.settle(t, delivery.Command{Kind: delivery.Ack, Proof: proof}); {
	case proof.Epoch != d.epoch:
		if !errs.Is(r.Err, errs.DeliveryLeaseLost) {
			t.Fatalf("ack with old epoch %s of %s: %v", proof.Epoch, d.epoch, r.Err)
		}
	case r.Err != nil || r.Deduplicated != (d.state == delivery.Acked):
		t.Fatalf("ack in state %s: %+v", d.state, r)
	case d.state != delivery.Acked:
		d.move(delivery.Acked)
	}
}

func (m *deliveryModel) settle(t *rapid.T, c delivery.Command) store.Settled {
	var wants []store.SessionWant
	if rapid.Bool().Draw(t, "with a turn") {
		wants = m.here(t)
	}
	out, turn, err := m.db.Gateway.SettleDeliveries(context.Background(), m.tenant.NamespaceID, m.sub, m.tenant.CredentialID, []delivery.Command{c}, wants)
	if err != nil {
		t.Fatal(err)
	}
	if len(wants) > 0 {
		m.joined = func(t *rapid.T) { m.played(t, wants, turn) }
	}
	return out[0]
}

func (m *deliveryModel) sent(t *rapid.T) *modelDelivery {
	var sent []*modelDelivery
	for _, d := range m.rows {
		if len(d.proofs) > 0 {
			sent = append(sent, d)
		}
	}
	if len(sent) == 0 {
		return nil
	}
	return rapid.SampledFrom(sent).Draw(t, "delivery")
}

// held draws a proof, settles with it, and reports whether the lease was held still: release and
// extend need that.
func (m *deliveryModel) held(t *rapid.T, c delivery.Command) *modelDelivery {
	d := m.sent(t)
	if d == nil {
		return nil
	}
	c.Proof = rapid.SampledFrom(d.proofs).Draw(t, "proof")
	r := m.settle(t, c)
	if d.state != delivery.Leased || c.Proof.Epoch != d.epoch {
		if !errs.Is(r.Err, errs.DeliveryLeaseLost) {
			t.Fatalf("%s with epoch %s in state %s, epoch %s: %+v", c.Kind, c.Proof.Epoch, d.state, d.epoch, r)
		}
		return nil
	}
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return d
}

func (m *deliveryModel) release(t *rapid.T) {
	c := delivery.Command{Kind: delivery.Release, Refund: rapid.Bool().Draw(t, "refund")}
	if rapid.Bool().Draw(t, "delayed") {
		c.Delay = 15 * time.Minute
	}
	d := m.held(t, c)
	if d == nil {
		return
	}
	if c.Refund {
		d.attempts--
	}
	d.giveUp()
	d.delayed = c.Delay > 0
}

func (m *deliveryModel) extend(t *rapid.T) {
	if d := m.held(t, delivery.Command{Kind: delivery.Extend}); d != nil {
		d.lapsed = false
	}
}

// check compares every row and the counter, after the turn that the last settlement brought.
func (m *deliveryModel) check(t *rapid.T) {
	if m.joined != nil {
		m.joined(t)
		m.joined = nil
	}
	list, _, err := m.db.Management.ListDeliveries(context.Background(), m.tenant.Caller, m.sub, "", store.Page{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(m.rows) {
		t.Fatalf("%d rows, the model %d", len(list), len(m.rows))
	}
	for i, got := range list { // newest first
		want := m.rows[len(m.rows)-1-i]
		if uint64(got.Sequence) != want.sequence || got.State != want.state || got.Revision != want.revision || got.LeaseEpoch != want.epoch ||
			got.Attempts != want.attempts || got.AttemptBudget != want.budget {
			t.Fatalf("row %+v, the model %+v", got, want)
		}
	}
	sub, err := m.db.Management.GetSubscription(context.Background(), m.tenant.Caller, m.sub)
	if err != nil {
		t.Fatal(err)
	}
	if sub.PendingCount != m.pending() || sub.PendingCount > m.maxPending || int(sub.CursorSequence) < m.cursor ||
		sub.Revision != m.revision || sub.Enabled != m.enabled {
		t.Fatalf("%+v, the model: pending %d, cursor %d, revision %s, enabled %v", sub, m.pending(), m.cursor, m.revision, m.enabled)
	}
}

func TestDeliveriesFollowTheModel(t *testing.T) {
	for _, maxPending := range []int{1, 2, 100, 1000} {
		t.Run(fmt.Sprint(maxPending), func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			rapid.Check(t, func(rt *rapid.T) {
				tenant := db.Tenant(t)
				budget := rapid.IntRange(1, 4).Draw(rt, "budget")
				m := &deliveryModel{t: t, db: db, tenant: tenant, maxPending: maxPending, budget: budget, enabled: true, revision: 1}
				m.sub = db.Subscribe(t, tenant, subscription.Create{MaxPending: maxPending, MaxAttempts: budget})
				for range rapid.IntRange(1, 3).Draw(rt, "sessions") {
					m.sessions = append(m.sessions, store.SessionWant{SessionID: ids.New(), Capacity: rapid.IntRange(1, 4).Draw(rt, "capacity")})
				}
				rt.Repeat(map[string]func(*rapid.T){
					"append": m.append, "claim": m.claim, "claim again": m.claim, "lapse": m.lapse, "mature": m.mature, "ack": m.ack, "release": m.release,
					"extend": m.extend, "retry": m.retry, "configure": m.configure, "reconnect": m.reconnect, "": m.check,
				})
			})
		})
	}
}
