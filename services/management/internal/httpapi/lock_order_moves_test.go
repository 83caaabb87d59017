package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// command reads a resource's revision and sends a command that expects it.
func (w *world) command(path, verb, rest string) string {
	data, outcome := w.call("GET", path, "")
	if data == nil {
		return outcome
	}
	revision := strings.Trim(string(data["revision"]), `"`)
	if inner := data["delivery"]; inner != nil {
		revision = textOf(inner, "revision")
	}
	_, outcome = w.call("POST", path+":"+verb, `{"expected_revision": "`+revision+`", "reason": "r"`+rest+`}`)
	return outcome
}

func (w *world) configureQueue() string {
	q, ok := anyOf(w, &w.queues)
	if !ok {
		return nothing
	}
	return w.command("/v1/queues/"+q.id.String(), "configure", fmt.Sprintf(`, "paused": %v`, rand.IntN(8) == 0))
}

func (w *world) retireQueue() string {
	q, ok := anyOf(w, &w.queues)
	if !ok {
		return nothing
	}
	w.mu.Lock()
	closing := q.closing
	w.mu.Unlock()
	if !closing && rand.IntN(4) > 0 { // the others need some to live
		return nothing
	}
	outcome := w.command("/v1/queues/"+q.id.String(), "retire", "")
	forget(w, &w.queues, q, outcome)
	return outcome
}

func (w *world) subscribe() string {
	q, ok := w.openQueue()
	if !ok {
		return nothing
	}
	data, outcome := w.call("POST", "/v1/subscriptions", fmt.Sprintf(`{"name": "s-%s", "queue_id": "%s", "max_attempts": %d}`, ids.New(), q.id, 1+rand.IntN(2)))
	if data == nil {
		return outcome
	}
	id, ok := w.idFrom(data, "subscription")
	if ok {
		put(w, &w.subs, worldSub{id, q})
	}
	return outcome
}

func (w *world) configureSubscription() string {
	s, ok := anyOf(w, &w.subs)
	if !ok {
		return nothing
	}
	return w.command("/v1/subscriptions/"+s.id.String(), "configure", fmt.Sprintf(`, "enabled": %v`, rand.IntN(6) > 0))
}

func (w *world) retireSubscription() string {
	s, ok := anyOf(w, &w.subs)
	if !ok {
		return nothing
	}
	outcome := w.command("/v1/subscriptions/"+s.id.String(), "retire", "")
	forget(w, &w.subs, s, outcome)
	return outcome
}

func (w *world) retryDelivery() string {
	e, ok := takeOf(w, &w.expired)
	if !ok {
		return nothing
	}
	return w.command("/v1/subscriptions/"+e.of.String()+"/deliveries/"+e.what.String(), "retry", `, "additional_attempts": 1`)
}

func (w *world) submit() string {
	q, ok := w.openQueue()
	if !ok {
		return nothing
	}
	safety := []string{"safe", "unsafe"}[rand.IntN(2)]
	data, outcome := w.call("POST", "/v1/tasks", fmt.Sprintf(`{"queue_id": "%s", "input": 1, "retry_safety": "%s", "labels": {"a": "b"}}`, q.id, safety))
	if data == nil {
		return outcome
	}
	if id, ok := w.idFrom(data, "task"); ok {
		put(w, &w.tasks, id)
	}
	return outcome
}

func (w *world) submitBatch() string {
	var items []string
	for range 1 + rand.IntN(5) {
		q, ok := w.openQueue()
		if !ok {
			return nothing
		}
		items = append(items, fmt.Sprintf(`{"queue_id": "%s", "input": 1, "priority": %d}`, q.id, rand.IntN(3)))
	}
	_, outcome := w.call("POST", "/v1/tasks:batch", `{"tasks": [`+strings.Join(items, ",")+`]}`)
	return outcome
}

func (w *world) cancel() string {
	id, ok := takeOf(w, &w.tasks)
	if !ok {
		return nothing
	}
	return w.command("/v1/tasks/"+id.String(), "cancel", "")
}

// resolve decides what a lost attempt left behind.
func (w *world) resolve() string {
	q, ok := anyOf(w, &w.queues)
	if !ok {
		return nothing
	}
	tasks, _, err := w.stores[0].ListTasks(context.Background(), w.tenant.Caller, store.TaskFilter{QueueID: q.id, State: task.NeedsReview}, store.Page{Limit: 1})
	if err != nil || len(tasks) == 0 {
		return w.judge("list tasks", err) + ", " + nothing
	}
	outcome := []string{"succeeded", "failed", "requeue"}[rand.IntN(3)]
	return w.command("/v1/tasks/"+tasks[0].ID.String(), "resolve", `, "outcome": "`+outcome+`"`)
}

func (w *world) claimTasks() string {
	q, ok := anyOf(w, &w.queues)
	if !ok {
		return nothing
	}
	out, err := w.gateway().ClaimTasks(context.Background(), w.tenant.NamespaceID, q.id, []store.WorkerWant{{SessionID: ids.New(), Worker: "w", Free: 1 + rand.IntN(8)}})
	for _, a := range out {
		if rand.IntN(40) > 0 { // some workers die
			put(w, &w.running, held[task.Proof]{q.id, task.Proof{AttemptID: a.Attempt.ID, Epoch: a.Attempt.Epoch, Digest: a.Secret.Digest()}})
		}
	}
	return w.judge("claim tasks", err)
}

// proofs takes some running attempts of one queue.
func (w *world) proofs() (queue ids.ID, proofs []task.Proof) {
	first, ok := takeOf(w, &w.running)
	if !ok {
		return queue, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	proofs = append(proofs, first.what)
	kept := w.running[:0]
	for _, r := range w.running {
		if r.of == first.of && len(proofs) < 8 {
			proofs = append(proofs, r.what)
		} else {
			kept = append(kept, r)
		}
	}
	w.running = kept
	return first.of, proofs
}

func (w *world) finish() string {
	queue, proofs := w.proofs()
	if proofs == nil {
		return nothing
	}
	outcomes := make([]task.Outcome, len(proofs))
	for i, p := range proofs {
		kind := []task.OutcomeKind{task.OutcomeComplete, task.OutcomeComplete, task.OutcomeFail, task.OutcomeRelease, task.OutcomeCancelled}[rand.IntN(5)]
		outcomes[i] = task.Outcome{Kind: kind, Proof: p, Retryable: rand.IntN(2) == 0}
		switch kind {
		case task.OutcomeComplete:
			outcomes[i].Result = strictjson.Raw(`1`)
		case task.OutcomeFail:
			outcomes[i].Failure = &task.Failure{Code: "c", Message: "m"}
			now := time.Duration(0)
			outcomes[i].RetryAfter = &now
		}
	}
	_, err := w.gateway().FinishAttempts(context.Background(), w.tenant.NamespaceID, queue, outcomes)
	return w.judge("finish", err)
}

func (w *world) renew() string {
	queue, proofs := w.proofs()
	if proofs == nil {
		return nothing
	}
	_, err := w.gateway().RenewAttempts(context.Background(), w.tenant.NamespaceID, queue, proofs)
	for _, p := range proofs {
		put(w, &w.running, held[task.Proof]{queue, p})
	}
	return w.judge("renew", err)
}

func (w *world) claimDeliveries() string {
	s, ok := anyOf(w, &w.subs)
	if !ok {
		return nothing
	}
	turn, err := w.gateway().ClaimDeliveries(context.Background(), w.tenant.NamespaceID, s.id, []store.SessionWant{{SessionID: ids.New(), Capacity: 1 + rand.IntN(32)}})
	for _, c := range turn.Claimed {
		put(w, &w.leased, held[delivery.Proof]{s.id, delivery.Proof{DeliveryID: c.Delivery.ID, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()}})
	}
	outcome := w.judge("claim deliveries", err, errs.ResourceRetired)
	forget(w, &w.subs, s, outcome)
	return outcome
}

func (w *world) settle() string {
	first, ok := takeOf(w, &w.leased)
	if !ok {
		return nothing
	}
	w.mu.Lock()
	batch, kept := []delivery.Proof{first.what}, w.leased[:0]
	for _, l := range w.leased {
		if l.of == first.of && len(batch) < 32 {
			batch = append(batch, l.what)
		} else {
			kept = append(kept, l)
		}
	}
	w.leased = kept
	w.mu.Unlock()
	commands := make([]delivery.Command, len(batch))
	for i, p := range batch {
		commands[i] = delivery.Command{Kind: delivery.Ack, Proof: p}
		switch rand.IntN(12) {
		case 0:
			commands[i].Kind = delivery.Extend
			put(w, &w.leased, held[delivery.Proof]{first.of, p})
		case 1:
			commands[i].Kind, commands[i].Refund = delivery.Release, rand.IntN(2) == 0
			put(w, &w.expired, held[ids.ID]{first.of, p.DeliveryID})
		}
	}
	_, _, err := w.gateway().SettleDeliveries(context.Background(), w.tenant.NamespaceID, first.of, w.tenant.CredentialID, commands, nil)
	return w.judge("settle", err)
}

func (w *world) sweepAttempts() string {
	_, err := w.stores[rand.IntN(2)].SweepAttempts(context.Background(), 50)
	return w.judge("sweep attempts", err)
}

func (w *world) sweepReceipts() string {
	_, err := w.stores[rand.IntN(2)].SweepReceipts(context.Background(), 2*time.Second, 100)
	return w.judge("sweep receipts", err)
}

func (w *world) quota() string {
	limit := []int{0, 50, 500}[rand.IntN(3)]
	return w.judge("quota", w.db.Owner.SetQuota(context.Background(), w.tenant.NamespaceID, w.tenant.ApplicationID, limit, limit))
}

// grant wakes the gateways as an operator does.
func (w *world) grant() string {
	return w.judge("grant", w.db.Owner.GrantCredential(context.Background(), w.tenant.CredentialID, store.Rights{Actions: []access.Action{access.EventsRead}}))
}

// check holds the database against what must always be true, and says what was played.
func (w *world) check() {
	w.t.Helper()
	for what, query := range map[string]string{
		"unfinished tasks of retired queues":        "queues q JOIN tasks t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id WHERE q.retired_at IS NOT NULL AND t.state IN ('QUEUED', 'RUNNING', 'NEEDS_REVIEW')",
		"permits of retired queues":                 "queues q JOIN permits t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id WHERE q.retired_at IS NOT NULL",
		"enabled schedules of retired queues":       "queues q JOIN schedules t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id WHERE q.retired_at IS NOT NULL AND t.state = 'ENABLED'",
		"live runs of retired queues":               "queues q JOIN flow_version_queues v ON v.namespace_id = q.namespace_id AND v.queue_id = q.id JOIN flow_runs r ON r.namespace_id = v.namespace_id AND r.flow_id = v.flow_id AND r.version = v.version AND r.live = 1 WHERE q.retired_at IS NOT NULL",
		"live subscriptions of retired queues":      "queues q JOIN subscriptions t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id WHERE q.retired_at IS NOT NULL AND t.retired_at IS NULL",
		"deliveries above a retirement":             "subscriptions s JOIN deliveries d ON d.namespace_id = s.namespace_id AND d.subscription_id = s.id WHERE d.sequence > s.retired_sequence",
		"un-acknowledged deliveries of retired":     "subscriptions s JOIN deliveries d ON d.namespace_id = s.namespace_id AND d.subscription_id = s.id WHERE s.retired_at IS NOT NULL AND d.state <> 'ACKED'",
		"subscriptions whose backlog is miscounted": "subscriptions s WHERE s.pending_count <> (SELECT COUNT(*) FROM deliveries d WHERE d.namespace_id = s.namespace_id AND d.subscription_id = s.id AND d.state <> 'ACKED')",
		"holes in the log":                          "result_streams r WHERE r.head <> (SELECT COUNT(*) FROM result_events e WHERE e.namespace_id = r.namespace_id)",
		"running tasks without a permit":            "tasks t LEFT JOIN permits p ON p.namespace_id = t.namespace_id AND p.attempt_id = t.current_attempt_id WHERE t.state = 'RUNNING' AND p.attempt_id IS NULL",
		"permits without a running task":            "permits p LEFT JOIN tasks t ON p.namespace_id = t.namespace_id AND p.attempt_id = t.current_attempt_id AND t.state = 'RUNNING' WHERE t.id IS NULL",
		"queued tasks that are not ready":           "tasks t LEFT JOIN ready_tasks r ON r.namespace_id = t.namespace_id AND r.task_id = t.id WHERE t.state = 'QUEUED' AND r.task_id IS NULL",
		"unfinished receipts":                       "receipts WHERE response = ''",
	} {
		var n int
		if err := w.db.SQL.QueryRow("SELECT COUNT(*) FROM " + query).Scan(&n); err != nil || n != 0 {
			w.t.Errorf("%d %s, %v", n, what, err)
		}
	}
	var played []string
	for outcome, n := range w.outcomes {
		played = append(played, fmt.Sprintf("%6d %s", n, outcome))
	}
	sort.Slice(played, func(i, j int) bool { return played[i][7:] < played[j][7:] })
	retries := int64(0)
	for _, s := range w.stores {
		retries += s.Retries()
	}
	w.t.Logf("%d transactions were retried\n%s", retries, strings.Join(played, "\n"))
	for _, must := range []string{"retire queue: done", "retire subscription: done"} {
		if w.outcomes[must] == 0 {
			w.t.Errorf("never %s", must)
		}
	}
}
