package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// demo runs the real job once over every file.
func demo(ctx context.Context) error {
	options, err := demoOptions("DEMO_RATE", 50)
	if err != nil {
		return err
	}
	switch v := os.Getenv("DEMO_KILL"); v {
	case "":
	case "gateway":
		options.killer = &killer{once: true}
	default:
		return fmt.Errorf("DEMO_KILL: only gateway can be killed, not %q", v)
	}
	return realJob(ctx, "demo", options)
}

// soak runs the same job for SOAK_MINUTES, over the files again and again, while the gateway and the
// management service are killed with -9 in turn.
func soak(ctx context.Context) error {
	options, err := demoOptions("SOAK_RATE", 100)
	if err != nil {
		return err
	}
	minutes, err := number("SOAK_MINUTES", 10)
	if err != nil {
		return err
	}
	if minutes < 1 || options.rate < 1 {
		return errors.New("SOAK_MINUTES and SOAK_RATE must be at least 1")
	}
	options.pieces = options.rate * 60 * minutes
	options.killer = &killer{every: 15 * time.Second}
	return realJob(ctx, "soak", options)
}

// realJob runs on a stack of its own: submit, execute, deliver, save, acknowledge, and compare
// everything that arrived with a direct computation.
func realJob(ctx context.Context, name string, options demoSettings) (err error) {
	began := time.Now()
	h, err := openHome(name)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(h.dir); err != nil { // a private database begins empty
		return err
	}
	if h, err = openHome(name); err != nil {
		return err
	}
	files, err := listFiles(options.dir, filepath.Dir(h.dir))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no regular file below %s", options.dir)
	}
	fmt.Printf("%s: %d files below %s\n", name, len(files), options.dir)
	a, err := demoAddrs()
	if err != nil {
		return err
	}
	s, err := start(ctx, h, a)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return err
	}
	fmt.Printf("%s: database, management (%s) and gateway (%s) are up after %.1f s\n", name, s.env.ManagementURL, s.env.GatewayURL, time.Since(began).Seconds())
	pieces := options.pieces
	if pieces == 0 {
		pieces = len(files)
	}
	j, err := newJob(ctx, s, options, rounds(files, pieces))
	if err != nil {
		return err
	}
	defer j.close()
	if err := j.run(ctx); err != nil {
		return err
	}
	return j.report(ctx, began)
}

// demoSettings are the job's own knobs.
type demoSettings struct {
	dir    string
	rate   int // tasks per second, 0 = as fast as it goes
	pieces int // 0 = every file once
	killer *killer
}

func demoOptions(rateName string, rate int) (demoSettings, error) {
	o := demoSettings{dir: orEnv("DEMO_DIR", ".")}
	var err error
	o.rate, err = number(rateName, rate)
	return o, err
}

func number(name string, fallback int) (int, error) {
	n, err := strconv.Atoi(orEnv(name, strconv.Itoa(fallback)))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: want a whole number, 0 or more", name)
	}
	return n, nil
}

// killer ends services as a crash would: the gateway once half-way, or both in turn.
type killer struct {
	once  bool
	every time.Duration
	kills int
	next  time.Time
}

func (k *killer) visit(s *stack, saved, total int) error {
	if k == nil {
		return nil
	}
	victim := s.gateway
	switch now := time.Now(); {
	case k.once:
		if k.kills > 0 || saved < total/2 {
			return nil
		}
	case k.next.IsZero():
		k.next = now.Add(k.every)
		return nil
	case now.Before(k.next):
		return nil
	default:
		k.next = now.Add(k.every)
		if k.kills%2 == 1 {
			victim = s.management
		}
	}
	k.kills++
	fmt.Fprintf(os.Stderr, "kill -9 of %s at %d of %d\n", victim.name, saved, total)
	return victim.kill()
}

// demoAddrs takes free ports unless some are asked for, so that a demo runs beside a stack.
func demoAddrs() (addrs, error) {
	var free [2]string
	for i := range free {
		addr, err := freeAddr()
		if err != nil {
			return addrs{}, err
		}
		free[i] = addr
	}
	return addrsFromEnv(free[0], free[1], ""), nil
}
