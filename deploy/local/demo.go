package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// demo runs the real job on a stack of its own: submit, execute, deliver, save, acknowledge, and
// compare everything that arrived with a direct computation.
func demo(ctx context.Context) (err error) {
	began := time.Now()
	h, err := openHome("demo")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(h.dir); err != nil { // a private database begins empty
		return err
	}
	if h, err = openHome("demo"); err != nil {
		return err
	}
	options, err := demoOptions(h)
	if err != nil {
		return err
	}
	files, err := listFiles(options.dir, filepath.Dir(h.dir))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no regular file below %s", options.dir)
	}
	fmt.Printf("demo: %d files below %s\n", len(files), options.dir)
	a, err := demoAddrs()
	if err != nil {
		return err
	}
	s, err := start(ctx, h, a)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return err
	}
	fmt.Printf("demo: database, management (%s) and gateway (%s) are up after %.1f s\n", s.env.ManagementURL, s.env.GatewayURL, time.Since(began).Seconds())
	j, err := newJob(ctx, s, options, files)
	if err != nil {
		return err
	}
	defer j.close()
	if err := j.run(ctx); err != nil {
		return err
	}
	return j.report(ctx, began)
}

// demoSettings are the demo's own knobs.
type demoSettings struct {
	dir  string
	rate int  // tasks per second, 0 = as fast as it goes
	kill bool // kill -9 the gateway half-way
}

func demoOptions(h home) (demoSettings, error) {
	o := demoSettings{dir: orEnv("DEMO_DIR", ".")}
	if _, err := fmt.Sscanf(orEnv("DEMO_RATE", "50"), "%d", &o.rate); err != nil || o.rate < 0 {
		return o, fmt.Errorf("DEMO_RATE: want a number of tasks per second, 0 for no limit")
	}
	switch v := os.Getenv("DEMO_KILL"); v {
	case "":
	case "gateway":
		o.kill = true
	default:
		return o, fmt.Errorf("DEMO_KILL: only gateway can be killed, not %q", v)
	}
	return o, nil
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
