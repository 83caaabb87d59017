package admin

import (
	"context"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

func secretCommand(dsn Source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Rotate a credential's secret without a gap",
		Long:  "Rotate a credential's secret without a gap: add one, switch the clients to the new token, revoke the old one.\nThe credential's id, and so its subscriptions, stay.",
	}
	cmd.AddCommand(secretAdd(dsn), secretRevoke(dsn))
	return cmd
}

func secretAdd(dsn Source) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "add CREDENTIAL_ID",
		Short: "Add a live secret beside the old ones and print the new token once",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return onCredential(cmd, dsn, args[0], rights{}, func(ctx context.Context, s *store.Store, id ids.ID, _ store.Rights) error {
				token, err := s.AddSecret(ctx, id)
				if err != nil {
					return err
				}
				return printToken(cmd.OutOrStdout(), out, id, token)
			})
		},
	}
	out.add(cmd)
	return cmd
}

func secretRevoke(dsn Source) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke CREDENTIAL_ID FINGERPRINT",
		Short: "Revoke one secret by the fingerprint that `credential list` shows; the last live one is refused",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onCredential(cmd, dsn, args[0], rights{}, func(ctx context.Context, s *store.Store, id ids.ID, _ store.Rights) error {
				return s.RevokeSecret(ctx, id, args[1])
			})
		},
	}
}
