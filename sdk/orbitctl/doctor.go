package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

// maxSkew is how far this machine's clock may be from the server's before schedules and logs mislead people.
const maxSkew = 5 * time.Second

// check is one line of doctor's report.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// probeID is a well-formed id that nothing has, to ask what a token may do without touching anything.
const probeID = "00000000000000000000000000000000"

func doctorCommand(a *app) *cobra.Command {
	var need []string
	var timeout time.Duration
	c := &cobra.Command{Use: "doctor", Short: "Check reachability, token, actions, clocks and versions", Args: exactly(0),
		Long: `Check both services, the token, its actions and the clocks, and say for each what is wrong and how to fix it.
Nothing is written. Exit 0 when all is right, 7 when a check failed. Actions that writes need are not probed.`}
	c.Flags().StringSliceVar(&need, "need", []string{"queues:read", "tasks:read", "events:read", "events:consume", "workers:execute"}, "the actions the token must have")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "of each check")
	c.RunE = func(c *cobra.Command, _ []string) error {
		for _, action := range need {
			if probes[action] == nil {
				return usage("--need: %q cannot be probed; these can: queues:read, tasks:read, events:read, events:consume, workers:execute", action)
			}
		}
		d := &doctor{app: a, timeout: timeout}
		d.run(c.Context(), need)
		bad := 0
		for _, k := range d.checks {
			if !k.OK {
				bad++
			}
		}
		if err := a.show(map[string]any{"ok": bad == 0, "checks": d.checks}, func() {
			for _, k := range d.checks {
				word := "ok  "
				if !k.OK {
					word = "FAIL"
				}
				fmt.Fprintf(a.out, "%s  %-28s %s\n", word, k.Name, printable(k.Detail))
				if k.Fix != "" {
					fmt.Fprintf(a.out, "      fix: %s\n", k.Fix)
				}
			}
		}); err != nil {
			return err
		}
		if bad > 0 {
			return partial("%d of %d checks failed", bad, len(d.checks))
		}
		return nil
	}
	return c
}

type doctor struct {
	*app
	timeout time.Duration
	checks  []check
}

func (d *doctor) add(name string, ok bool, detail, fix string) {
	if ok {
		fix = ""
	}
	d.checks = append(d.checks, check{name, ok, detail, fix})
}

func (d *doctor) run(ctx context.Context, need []string) {
	d.add("orbitctl version", true, version, "")
	m, err := d.managementURL()
	up := d.service(ctx, "management", m, err, "ORBIT_MANAGEMENT_URL")
	g, err := d.gatewayURL()
	up2 := d.service(ctx, "gateway", g, err, "ORBIT_GATEWAY_URL")
	token, err := d.token()
	if err != nil {
		d.add("token", false, err.Error(), "set ORBIT_TOKEN, or ORBIT_TOKEN_FILE to a file you can read")
		return
	}
	if !up {
		d.add("token", false, "not checked: management does not answer", "mend management first")
		return
	}
	client, err := d.client(orbit.WithTimeout(d.timeout), orbit.WithRetry(1, orbit.Backoff{}))
	if err != nil {
		d.add("token", false, err.Error(), "correct the address or the token's form")
		return
	}
	// The credential is checked before the action (R2.9), so any answer but 401 shows that it is live.
	if _, err = client.GetQueue(ctx, probeID); errors.Is(err, orbit.ErrUnauthenticated) {
		d.add("token", false, err.Error(), "get a live token of the same credential from an operator")
		return
	} else if exitCode(err) == exitUnavailable {
		d.add("token", false, err.Error(), "the service is up but cannot answer; look at its log")
		return
	}
	d.add("token", true, "accepted", "")
	for _, action := range need {
		if !up2 && (action == "events:consume" || action == "workers:execute") {
			d.add("action "+action, false, "not checked: the gateway does not answer", "mend the gateway first")
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, d.timeout)
		err := probes[action](ctx, client, g, token, d.insecure)
		cancel()
		switch {
		case err == nil, errors.Is(err, orbit.ErrNotFound):
			d.add("action "+action, true, "granted", "")
		case errors.Is(err, orbit.ErrPermissionDenied):
			d.add("action "+action, false, "missing", "ask an operator to grant "+action+" to this credential")
		default:
			d.add("action "+action, false, err.Error(), firstOf(whatToDo(err), "look at the service's log"))
		}
	}
}

// service looks whether one service answers, is ready, and what its clock says.
func (d *doctor) service(ctx context.Context, name, base string, err error, variable string) bool {
	if err != nil {
		d.add(name+" reachable", false, err.Error(), "set "+variable)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(strings.Replace(base, "ws", "http", 1), "/")+"/readyz", nil)
	if err != nil {
		d.add(name+" reachable", false, err.Error(), "correct "+variable)
		return false
	}
	sent := time.Now()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.add(name+" reachable", false, err.Error(), "check "+variable+", that "+name+" runs, DNS, TLS and firewalls in between")
		return false
	}
	_ = answer.Body.Close()
	took := time.Since(sent)
	d.add(name+" reachable", true, base, "")
	d.add(name+" ready", answer.StatusCode == http.StatusOK, answer.Status, "the service is up but not ready: see its log, its database and its schema version")
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		d.add(name+" clock", false, "it sends no Date header", "a proxy strips Date; compare the clocks by hand")
		return true
	}
	// Date has whole seconds, so the truth is up to a second later than it says.
	skew := sent.Add(took / 2).Sub(date.Add(500 * time.Millisecond)).Round(time.Second)
	fit := fmt.Sprintf("within %s of this machine's", maxSkew)
	if skew.Abs() > maxSkew {
		fit = fmt.Sprintf("this machine's clock is %s off", skew)
	}
	d.add(name+" clock", skew.Abs() <= maxSkew, fit, "synchronise the clocks (NTP) of this machine and of the server")
	return true
}

// probes ask for something that does not exist: a token with the action gets NOT_FOUND.
var probes = map[string]func(ctx context.Context, c *orbit.Client, gateway, token string, insecure bool) error{
	"queues:read": func(ctx context.Context, c *orbit.Client, _, _ string, _ bool) error {
		_, err := c.GetQueue(ctx, probeID)
		return err
	},
	"tasks:read": func(ctx context.Context, c *orbit.Client, _, _ string, _ bool) error {
		_, err := c.GetTask(ctx, probeID)
		return err
	},
	"events:read": func(ctx context.Context, c *orbit.Client, _, _ string, _ bool) error {
		_, err := c.GetSubscription(ctx, probeID)
		return err
	},
	"events:consume": func(ctx context.Context, _ *orbit.Client, gateway, token string, insecure bool) error {
		conn, err := orbit.DialEvents(ctx, orbit.EventOptions{URL: gateway, Token: token, SubscriptionID: probeID, InsecureHTTP: insecure})
		if err == nil {
			conn.Close()
		}
		return err
	},
	"workers:execute": func(ctx context.Context, _ *orbit.Client, gateway, token string, insecure bool) error {
		conn, err := orbit.DialWorker(ctx, orbit.WorkerOptions{URL: gateway, Token: token, QueueID: probeID, Name: "orbitctl-doctor", InsecureHTTP: insecure})
		if err == nil {
			conn.Close()
		}
		return err
	},
}
