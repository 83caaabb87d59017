// Package admin is the command line that sets an installation up and changes who may do what. It
// talks to the database as the schema's owner and prints for people, or with -o json for scripts.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Source returns the DSN of the schema's owner.
type Source func() (dsn string, err error)

// Commands returns every administration command; each opens the database only when it runs.
func Commands(dsn Source) []*cobra.Command {
	return []*cobra.Command{
		migrateCommand(dsn), bootstrapCommand(dsn), namespaceCommand(dsn), applicationCommand(dsn), credentialCommand(dsn), secretCommand(dsn),
	}
}

// withStore runs fn on a store whose schema fits.
func withStore(ctx context.Context, dsn Source, fn func(s *store.Store) error) error {
	text, err := dsn()
	if err != nil {
		return err
	}
	s, err := store.Open(text, store.Pool{MaxOpen: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.CheckSchema(ctx); err != nil {
		return shown(err)
	}
	return shown(fn(s))
}

// shown is an error as a person at the command line should see it: an operator may see causes.
func shown(err error) error {
	if err == nil || errs.KindOf(err) == errs.Unavailable {
		return err
	}
	if kind := errs.KindOf(err); kind != errs.Internal {
		return fmt.Errorf("%s (%s)", errs.MessageOf(err), kind)
	}
	return err
}

// output is the -o flag.
type output struct{ format string }

func (o *output) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "text", "text or json")
}

// check refuses an unknown format before anything is done.
func (o *output) check() error {
	if o.format != "text" && o.format != "json" {
		return fmt.Errorf("--output must be text or json, is %q", o.format)
	}
	return nil
}

// print writes v as one JSON line, or what text writes.
func (o *output) print(w io.Writer, v any, text func(w io.Writer)) error {
	if o.format == "json" {
		return json.NewEncoder(w).Encode(v)
	}
	text(w)
	return nil
}
