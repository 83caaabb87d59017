package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

func credentialCommand(dsn Source) *cobra.Command {
	cmd := &cobra.Command{Use: "credential", Short: "Make, list, widen, narrow or revoke credentials"}
	cmd.AddCommand(credentialCreate(dsn), credentialList(dsn), credentialGrant(dsn), credentialRevoke(dsn))
	return cmd
}

// rights are the flags that say what and where.
type rights struct {
	actions   []string
	queues    []string
	allQueues bool
}

func (r *rights) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&r.actions, "actions", nil, "comma-separated, of "+access.JoinActions(access.Actions))
	f.StringSliceVar(&r.queues, "queue", nil, "name of a queue; may be repeated")
	f.BoolVar(&r.allQueues, "all-queues", false, "every queue of the namespace, later ones too")
}

func (r *rights) parse() (store.Rights, error) {
	out := store.Rights{Queues: r.queues, AllQueues: r.allQueues}
	if len(r.actions) == 0 {
		return out, nil
	}
	var err error
	if out.Actions, err = access.ParseActions(strings.Join(r.actions, ",")); err != nil {
		return out, fmt.Errorf("--actions: %w", err)
	}
	return out, nil
}

func (r *rights) empty() bool { return len(r.actions) == 0 && len(r.queues) == 0 && !r.allQueues }

func credentialCreate(dsn Source) *cobra.Command {
	var (
		namespace, application string
		r                      rights
		out                    output
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a credential of an application and print its token once",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := r.parse()
			switch {
			case err != nil:
				return err
			case len(given.Actions) == 0:
				return errors.New("--actions is required")
			}
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), dsn, func(s *store.Store) error {
				id, token, err := s.CreateCredential(cmd.Context(), namespace, application, args[0], given)
				if err != nil {
					return err
				}
				return printToken(cmd.OutOrStdout(), out, id, token)
			})
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "name of the namespace (required)")
	cmd.Flags().StringVar(&application, "application", "", "name of the application (required)")
	_ = cmd.MarkFlagRequired("namespace") // fails only for a flag that is not there
	_ = cmd.MarkFlagRequired("application")
	r.add(cmd)
	out.add(cmd)
	return cmd
}

func printToken(w io.Writer, out output, credential ids.ID, token string) error {
	made := struct {
		CredentialID ids.ID `json:"credential_id"`
		Token        string `json:"token"`
	}{credential, token}
	return out.print(w, made, func(w io.Writer) {
		fmt.Fprintf(w, "credential   %s\ntoken        %s\n\nKeep the token now: only its digest is stored, so it cannot be shown again.\n", credential, token)
	})
}

func credentialList(dsn Source) *cobra.Command {
	var (
		namespace string
		out       output
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the credentials of a namespace with their rights and secrets' fingerprints",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), dsn, func(s *store.Store) error {
				rows, err := s.ListCredentials(cmd.Context(), namespace)
				if err != nil {
					return err
				}
				if rows == nil {
					rows = []*store.Credential{}
				}
				return out.print(cmd.OutOrStdout(), rows, func(w io.Writer) {
					table(w, "ID\tNAME\tAPPLICATION\tQUEUES\tACTIONS\tLIVE SECRETS", rows, credentialLine)
				})
			})
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "name of the namespace (required)")
	_ = cmd.MarkFlagRequired("namespace") // fails only for a flag that is not there
	out.add(cmd)
	return cmd
}

func credentialLine(c *store.Credential) string {
	queues := strings.Join(c.Queues, ",")
	if c.AllQueues {
		queues = "all"
	}
	var live []string
	for _, secret := range c.Secrets {
		if secret.RevokedAt == nil {
			live = append(live, secret.Fingerprint)
		}
	}
	secrets := strings.Join(live, ",")
	if c.RevokedAt != nil {
		secrets = "revoked " + c.RevokedAt.Format(time.RFC3339)
	}
	return strings.Join([]string{c.ID.String(), c.Name, c.Application, queues, c.Actions, secrets}, "\t")
}

func credentialGrant(dsn Source) *cobra.Command {
	var r rights
	cmd := &cobra.Command{
		Use:   "grant CREDENTIAL_ID",
		Short: "Add actions or queues to a credential",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.empty() {
				return errors.New("name what to grant: --actions, --queue or --all-queues")
			}
			return onCredential(cmd, dsn, args[0], r, func(ctx context.Context, s *store.Store, id ids.ID, given store.Rights) error {
				return s.GrantCredential(ctx, id, given)
			})
		},
	}
	r.add(cmd)
	return cmd
}

func credentialRevoke(dsn Source) *cobra.Command {
	var (
		r     rights
		whole bool
	)
	cmd := &cobra.Command{
		Use:   "revoke CREDENTIAL_ID",
		Short: "Take actions or queues away, or with --whole end the credential for good",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if whole != r.empty() {
				return errors.New("name what to take: either --whole, or some of --actions, --queue and --all-queues")
			}
			return onCredential(cmd, dsn, args[0], r, func(ctx context.Context, s *store.Store, id ids.ID, given store.Rights) error {
				if whole {
					return s.RevokeCredential(ctx, id)
				}
				return s.WithdrawRights(ctx, id, given)
			})
		},
	}
	r.add(cmd)
	cmd.Flags().BoolVar(&whole, "whole", false, "the credential itself, with all its secrets; cannot be undone")
	return cmd
}

// onCredential parses the id and the rights before the database is opened.
func onCredential(cmd *cobra.Command, dsn Source, text string, r rights, do func(ctx context.Context, s *store.Store, id ids.ID, given store.Rights) error) error {
	id, err := ids.ParseID(text)
	if err != nil {
		return fmt.Errorf("CREDENTIAL_ID %w", err)
	}
	given, err := r.parse()
	if err != nil {
		return err
	}
	return withStore(cmd.Context(), dsn, func(s *store.Store) error { return do(cmd.Context(), s, id, given) })
}
