package orbittest

import (
	"slices"
	"strconv"
	"strings"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

func (f *Fake) hasSubscription(r *request) error {
	if f.state.subscription(r.ids[0]) == nil {
		return missing("subscription", r.ids[0])
	}
	return nil
}

func (f *Fake) hasDelivery(r *request) error {
	_, err := f.findDelivery(r)
	return err
}

func (f *Fake) findDelivery(r *request) (*delivery, error) {
	if err := f.hasSubscription(r); err != nil {
		return nil, err
	}
	for _, d := range f.state.subscription(r.ids[0]).deliveries {
		if d.ID == r.ids[1] {
			return d, nil
		}
	}
	return nil, missing("delivery", r.ids[1])
}

func (s *subscription) text() []byte {
	s.CursorSequence, s.PendingCount = strconv.FormatUint(s.cursor, 10), len(s.open)
	return encode(s.Subscription)
}

func subscriptionData(s *subscription) []byte {
	return with([]byte("{}"), "subscription", s.text())
}

var allTypes = []string{orbit.TaskCancelled, orbit.TaskFailed, orbit.TaskNeedsReview, orbit.TaskSucceeded}

func (f *Fake) createSubscription(r *request) ([]byte, error) {
	var body struct {
		Name         string         `json:"name"`
		QueueID      string         `json:"queue_id"`
		Types        []string       `json:"types"`
		FromSequence *orbit.Counter `json:"from_sequence"`
		MaxPending   int            `json:"max_pending"`
		MaxAttempts  int            `json:"max_attempts"`
	}
	if err := decode(r.body, &body); err != nil {
		return nil, err
	}
	if body.MaxPending == 0 {
		body.MaxPending = 100
	}
	if body.MaxAttempts == 0 {
		body.MaxAttempts = 20
	}
	types := slices.Clone(body.Types)
	if len(types) == 0 {
		types = allTypes
	}
	slices.Sort(types)
	for i, t := range types {
		if !slices.Contains(allTypes, t) || i > 0 && types[i-1] == t {
			return nil, refuse(orbit.ErrInvalidArgument, "types: must be a non-repeating subset of the four result types")
		}
	}
	if !idForm.MatchString(body.QueueID) {
		return nil, refuse(orbit.ErrInvalidArgument, "queue_id: must be 32 lowercase hex characters")
	}
	err := firstOf(checkName("name", body.Name), checkRange("max_pending", body.MaxPending, 1, 1000), checkRange("max_attempts", body.MaxAttempts, 1, 100))
	if err != nil {
		return nil, err
	}
	if _, err := f.openQueue(body.QueueID); err != nil {
		return nil, err
	}
	head := uint64(len(f.state.log))
	cursor := head
	if body.FromSequence != nil {
		if err := checkCounter("from_sequence", body.FromSequence); err != nil {
			return nil, err
		}
		cursor, _ = orbit.ParseCounter(*body.FromSequence) // just checked
		if cursor > head {
			return nil, refuse(orbit.ErrInvalidArgument, "from_sequence: is %d, above the committed head %d", cursor, head)
		}
	}
	active := 0
	for _, s := range f.state.subscriptions {
		if s.Name == body.Name {
			return nil, refuse(orbit.ErrStateConflict, "name: a subscription named %q exists or existed in this namespace", body.Name)
		}
		if s.RetiredAt == nil {
			active++
		}
	}
	if active >= 64 {
		return nil, refuse(orbit.ErrSubscriptionLimit, "the namespace has %d subscriptions, the limit is 64", active)
	}
	at := now()
	s := &subscription{cursor: cursor, Subscription: orbit.Subscription{ID: orbit.NewID(), QueueID: body.QueueID, CredentialID: f.credentialID,
		Name: body.Name, Revision: "1", Enabled: true, Types: types, MaxPending: body.MaxPending, MaxAttempts: body.MaxAttempts, CreatedAt: at, UpdatedAt: at}}
	f.state.subscriptions = append(f.state.subscriptions, s)
	f.note(r, "subscription.create", s.ID, map[string]string{"name": s.Name})
	return subscriptionData(s), nil
}

func (f *Fake) getSubscription(r *request) ([]byte, error) {
	if err := f.hasSubscription(r); err != nil {
		return nil, err
	}
	return f.state.subscription(r.ids[0]).text(), nil
}

func (f *Fake) listSubscriptions(r *request) ([]byte, error) {
	queueID := r.query.Get("queue_id")
	if !idForm.MatchString(queueID) {
		return nil, refuse(orbit.ErrInvalidArgument, "queue_id: this parameter is required, 32 lowercase hex characters")
	}
	if f.state.queue(queueID) == nil {
		return nil, missing("queue", queueID)
	}
	var found []*subscription
	for _, s := range reversed(f.state.subscriptions) {
		if s.QueueID == queueID {
			found = append(found, s)
		}
	}
	return page(r, "subscriptions "+queueID, found, (*subscription).text)
}

func (f *Fake) configureSubscription(r *request) ([]byte, error) {
	var body struct {
		ExpectedRevision *orbit.Counter `json:"expected_revision"`
		Enabled          *bool          `json:"enabled"`
		Reason           string         `json:"reason"`
	}
	if err := firstOf(decode(r.body, &body), checkCounter("expected_revision", body.ExpectedRevision), checkReason(body.Reason)); err != nil {
		return nil, err
	}
	if body.Enabled == nil {
		return nil, refuse(orbit.ErrInvalidArgument, "enabled: is required")
	}
	s := f.state.subscription(r.ids[0])
	if err := firstOf(live("subscription", s.ID, s.RetiredAt != nil), checkRevision("subscription", s.ID, s.Revision, body.ExpectedRevision)); err != nil {
		return nil, err
	}
	s.Enabled, s.Revision, s.UpdatedAt = *body.Enabled, next(s.Revision), now()
	f.note(r, "subscription.configure", s.ID, map[string]any{"enabled": s.Enabled, "reason": body.Reason})
	return subscriptionData(s), nil
}

// retireSubscription is R7.1.
func (f *Fake) retireSubscription(r *request) ([]byte, error) {
	var body retirement
	if err := body.read(r); err != nil {
		return nil, err
	}
	s := f.state.subscription(r.ids[0])
	if err := firstOf(live("subscription", s.ID, s.RetiredAt != nil), checkRevision("subscription", s.ID, s.Revision, body.ExpectedRevision)); err != nil {
		return nil, err
	}
	unread := 0
	for _, e := range f.state.log[s.cursor:] {
		if e.queueID == s.QueueID && slices.Contains(s.Types, e.kind) {
			unread++
		}
	}
	if unread > 0 || len(s.open) > 0 {
		return nil, refuse(orbit.ErrResourceBusy, "subscription %s has %d deliveries not acknowledged and %d events not yet delivered", s.ID, len(s.open), unread)
	}
	at := now()
	s.cursor = uint64(len(f.state.log))
	s.Enabled, s.RetiredAt, s.Revision, s.UpdatedAt = false, &at, next(s.Revision), at
	s.RetiredSequence = strconv.FormatUint(s.cursor, 10)
	f.note(r, "subscription.retire", s.ID, map[string]string{"reason": body.Reason})
	for _, session := range slices.Clone(s.sessions) {
		session.refuse("", &orbit.Error{Code: orbit.ErrResourceRetired, Message: "subscription " + s.ID + " was retired"})
	}
	return subscriptionData(s), nil
}

func (f *Fake) listDeliveries(r *request) ([]byte, error) {
	if err := f.hasSubscription(r); err != nil {
		return nil, err
	}
	state := r.query.Get("state")
	if state != "" && !slices.Contains([]string{orbit.DeliveryPending, orbit.DeliveryLeased, orbit.DeliveryAcked, orbit.DeliveryExpired}, state) {
		return nil, refuse(orbit.ErrInvalidArgument, "state: must be PENDING, LEASED, ACKED or EXPIRED")
	}
	var found []*delivery
	for _, d := range reversed(f.state.subscription(r.ids[0]).deliveries) {
		if state == "" || d.State == state {
			found = append(found, d)
		}
	}
	return page(r, strings.Join([]string{"deliveries", r.ids[0], state}, " "), found, func(d *delivery) []byte { return encode(d.EventDelivery) })
}

func (f *Fake) getDelivery(r *request) ([]byte, error) {
	d, err := f.findDelivery(r)
	if err != nil {
		return nil, err
	}
	return with(with([]byte("{}"), "delivery", encode(d.EventDelivery)), "event", d.event.text), nil
}

func (f *Fake) retryDelivery(r *request) ([]byte, error) {
	var body struct {
		ExpectedRevision   *orbit.Counter `json:"expected_revision"`
		Reason             string         `json:"reason"`
		AdditionalAttempts int            `json:"additional_attempts"`
	}
	err := firstOf(decode(r.body, &body), checkCounter("expected_revision", body.ExpectedRevision), checkReason(body.Reason),
		checkRange("additional_attempts", body.AdditionalAttempts, 1, 100))
	if err != nil {
		return nil, err
	}
	d, err := f.findDelivery(r)
	if err != nil {
		return nil, err
	}
	s := f.state.subscription(r.ids[0])
	if err := firstOf(live("subscription", s.ID, s.RetiredAt != nil), checkRevision("delivery", d.ID, d.Revision, body.ExpectedRevision)); err != nil {
		return nil, err
	}
	if d.State != orbit.DeliveryExpired {
		return nil, refuse(orbit.ErrStateConflict, "delivery %s is %s, only an EXPIRED one can be retried", d.ID, d.State)
	}
	if d.AttemptBudget+body.AdditionalAttempts > 1_000_000 {
		return nil, refuse(orbit.ErrStateConflict, "additional_attempts: the budget's limit is 1000000")
	}
	d.State, d.Revision, d.AvailableAt = orbit.DeliveryPending, next(d.Revision), now()
	d.AttemptBudget += body.AdditionalAttempts
	f.note(r, "delivery.retry", d.ID, map[string]any{"additional_attempts": body.AdditionalAttempts, "reason": body.Reason})
	return with([]byte("{}"), "delivery", encode(d.EventDelivery)), nil
}
