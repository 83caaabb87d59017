package store_test

import (
	"context"
	"fmt"
	"testing"

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
	epoch    ids.Counter
	attempts int
	session  int
	proofs   []delivery.Proof // by epoch, first is epoch 1
}

// deliveryModel plays §6.4–6.5 in memory: several sessions, lapses, pauses, late acks.
type deliveryModel struct {
	t          *testing.T // for what only breaks when the database does
	db         *storetest.DB
	tenant     storetest.Tenant
	sub        ids.ID
	maxPending int
	budget     int
	head       int
	cursor     int
	rows       []*modelDelivery
	sessions   []store.SessionWant
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

func (m *deliveryModel) claim(t *rapid.T) {
	turn, err := m.db.Gateway.ClaimDeliveries(context.Background(), m.tenant.NamespaceID, m.sub, m.sessions)
	if err != nil {
		t.Fatal(err)
	}
	held := map[int]int{}
	for _, d := range m.rows {
		if d.state == delivery.Leased {
			held[d.session]++
		}
	}
	for m.pending() < m.maxPending && m.cursor < m.head {
		m.cursor++
		m.rows = append(m.rows, &modelDelivery{sequence: uint64(m.cursor), state: delivery.Pending})
	}
	free := 0
	for i, s := range m.sessions {
		free += max(s.Capacity-held[i], 0)
	}
	var want []*modelDelivery
	for _, d := range m.rows {
		if d.state == delivery.Pending && len(want) < free {
			want = append(want, d)
		}
	}
	if len(turn.Claimed) != len(want) {
		t.Fatalf("claimed %d, the model %d", len(turn.Claimed), len(want))
	}
	for i, c := range turn.Claimed {
		d := want[i]
		d.id, d.state, d.epoch, d.attempts = c.Delivery.ID, delivery.Leased, d.epoch+1, d.attempts+1
		d.proofs = append(d.proofs, delivery.Proof{DeliveryID: d.id, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()})
		for k, s := range m.sessions {
			if s.SessionID == c.SessionID {
				d.session = k
			}
		}
		if uint64(c.Delivery.Sequence) != d.sequence || c.Delivery.LeaseEpoch != d.epoch || c.Delivery.Attempts != d.attempts {
			t.Fatalf("claimed %+v, the model %+v", c.Delivery, d)
		}
		if held[d.session]++; held[d.session] > m.sessions[d.session].Capacity {
			t.Fatalf("session %d holds %d of %d", d.session, held[d.session], m.sessions[d.session].Capacity)
		}
	}
}

// lapse ends some leases and lets a turn without sessions recover them.
func (m *deliveryModel) lapse(t *rapid.T) {
	some := rapid.IntRange(1, 3).Draw(t, "every")
	for i, d := range m.rows {
		if d.state != delivery.Leased || i%some != 0 {
			continue
		}
		if _, err := m.db.SQL.Exec("UPDATE deliveries SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE subscription_id = ? AND sequence = ?", m.sub[:], d.sequence); err != nil {
			t.Fatal(err)
		}
		if d.state = delivery.Pending; d.attempts >= m.budget {
			d.state = delivery.Expired
		}
	}
	saved := m.sessions
	m.sessions = nil
	m.claim(t)
	m.sessions = saved
}

func (m *deliveryModel) ack(t *rapid.T) {
	d := m.sent(t)
	if d == nil {
		return
	}
	proof := rapid.SampledFrom(d.proofs).Draw(t, "proof")
	out, err := m.db.Gateway.SettleDeliveries(context.Background(), m.tenant.NamespaceID, m.sub, m.tenant.CredentialID,
		[]delivery.Command{{Kind: delivery.Ack, Proof: proof}})
	if err != nil {
		t.Fatal(err)
	}
	switch r := out[0]; {
	case proof.Epoch != d.epoch:
		if !errs.Is(r.Err, errs.DeliveryLeaseLost) {
			t.Fatalf("ack with old epoch %s of %s: %v", proof.Epoch, d.epoch, r.Err)
		}
	case r.Err != nil || r.Deduplicated != (d.state == delivery.Acked):
		t.Fatalf("ack in state %s: %+v", d.state, r)
	default:
		d.state = delivery.Acked
	}
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

func (m *deliveryModel) release(t *rapid.T) {
	d := m.sent(t)
	if d == nil {
		return
	}
	refund := rapid.Bool().Draw(t, "refund")
	out, err := m.db.Gateway.SettleDeliveries(context.Background(), m.tenant.NamespaceID, m.sub, m.tenant.CredentialID,
		[]delivery.Command{{Kind: delivery.Release, Proof: d.proofs[len(d.proofs)-1], Refund: refund}})
	if err != nil {
		t.Fatal(err)
	}
	if d.state != delivery.Leased {
		if !errs.Is(out[0].Err, errs.DeliveryLeaseLost) {
			t.Fatalf("release in state %s: %+v", d.state, out[0])
		}
		return
	}
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	if refund {
		d.attempts--
	}
	if d.state = delivery.Pending; d.attempts >= m.budget {
		d.state = delivery.Expired
	}
}

// check compares every row and the counter.
func (m *deliveryModel) check(t *rapid.T) {
	list, _, err := m.db.Management.ListDeliveries(context.Background(), m.tenant.Caller, m.sub, "", store.Page{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(m.rows) {
		t.Fatalf("%d rows, the model %d", len(list), len(m.rows))
	}
	for i, got := range list { // newest first
		want := m.rows[len(m.rows)-1-i]
		if uint64(got.Sequence) != want.sequence || got.State != want.state || got.LeaseEpoch != want.epoch || got.Attempts != want.attempts {
			t.Fatalf("row %+v, the model %+v", got, want)
		}
	}
	sub, err := m.db.Management.GetSubscription(context.Background(), m.tenant.Caller, m.sub)
	if err != nil {
		t.Fatal(err)
	}
	if sub.PendingCount != m.pending() || int(sub.CursorSequence) < m.cursor {
		t.Fatalf("pending_count %d cursor %s, the model %d %d", sub.PendingCount, sub.CursorSequence, m.pending(), m.cursor)
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
				m := &deliveryModel{t: t, db: db, tenant: tenant, maxPending: maxPending, budget: budget}
				m.sub = db.Subscribe(t, tenant, subscription.Create{MaxPending: maxPending, MaxAttempts: budget})
				for range rapid.IntRange(1, 3).Draw(rt, "sessions") {
					m.sessions = append(m.sessions, store.SessionWant{SessionID: ids.New(), Capacity: rapid.IntRange(1, 4).Draw(rt, "capacity")})
				}
				rt.Repeat(map[string]func(*rapid.T){
					"append": m.append, "claim": m.claim, "lapse": m.lapse, "ack": m.ack, "release": m.release, "": m.check,
				})
			})
		})
	}
}
