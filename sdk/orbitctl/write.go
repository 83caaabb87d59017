package main

import (
	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

// write holds the flags that commands on an existing resource share.
type write struct {
	reason   string
	revision string
	key      string
}

func (w *write) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.reason, "reason", "", "why, for the audit (required, 1 to 1024 characters)")
	c.Flags().StringVar(&w.revision, "expected-revision", "", "refuse if the revision is another (default: the present one)")
	keyFlag(c, &w.key)
	_ = c.MarkFlagRequired("reason") // fails only for a flag that does not exist
}

// expected is the given revision, or the present one.
func (w *write) expected(read func() (string, error)) (string, error) {
	if w.revision != "" {
		return w.revision, nil
	}
	return read()
}

func keyFlag(c *cobra.Command, key *string) {
	c.Flags().StringVar(key, "key", "", "idempotency key; repeat it to repeat a command safely (default: a fresh one)")
}

func limitFlag(c *cobra.Command, limit *int) {
	c.Flags().IntVar(limit, "limit", 100, "show at most so many; 0: all")
}

func keyOf(key string) string {
	if key == "" {
		return orbit.NewKey()
	}
	return key
}
