package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal, and a line now and then in a log.
type progress struct {
	total int
	bar   *progressbar.ProgressBar
	next  time.Time
}

const lineEvery = 2 * time.Second

func newProgress(total int) *progress {
	p := &progress{total: total, next: time.Now().Add(lineEvery)}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetDescription("saved"), progressbar.OptionShowCount(),
			progressbar.OptionSetWriter(os.Stderr), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

func (p *progress) show(saved int) {
	if p.bar != nil {
		_ = p.bar.Set(saved) // a bar that cannot be drawn is no reason to stop
		return
	}
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(lineEvery)
		fmt.Fprintf(os.Stderr, "demo: %d of %d results saved\n", saved, p.total)
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish() // as in show
	}
}
