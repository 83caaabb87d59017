package admin

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

func namespaceCommand(dsn Source) *cobra.Command {
	cmd := &cobra.Command{Use: "namespace", Short: "Make or list namespaces, the borders between tenants"}
	cmd.AddCommand(
		createNamed(dsn, "create NAME", "Make a namespace with an empty result log", func(ctx context.Context, s *store.Store, name string) (ids.ID, error) {
			return s.CreateNamespace(ctx, name)
		}),
		listNamed(dsn, "List every namespace", func(ctx context.Context, s *store.Store) ([]store.Named, error) { return s.ListNamespaces(ctx) }),
	)
	return cmd
}

func applicationCommand(dsn Source) *cobra.Command {
	cmd := &cobra.Command{Use: "application", Short: "Make or list the applications of a namespace"}
	namespace := requiredNamespace(cmd)
	cmd.AddCommand(
		createNamed(dsn, "create NAME", "Make an application", func(ctx context.Context, s *store.Store, name string) (ids.ID, error) {
			return s.CreateApplication(ctx, *namespace, name)
		}),
		listNamed(dsn, "List the applications of a namespace", func(ctx context.Context, s *store.Store) ([]store.Named, error) {
			return s.ListApplications(ctx, *namespace)
		}),
		quotaCommand(dsn, namespace),
	)
	return cmd
}

// quotaCommand limits what one application may have queued and running (R8.8).
func quotaCommand(dsn Source, namespace *string) *cobra.Command {
	var queued, running int
	cmd := &cobra.Command{
		Use: "quota NAME", Short: "Limit the queued and running tasks of an application; 0 is no limit", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStore(cmd.Context(), dsn, func(s *store.Store) error {
				return s.SetQuotaByName(cmd.Context(), *namespace, args[0], queued, running)
			})
		},
	}
	cmd.Flags().IntVar(&queued, "queued", 0, "tasks that may wait")
	cmd.Flags().IntVar(&running, "running", 0, "attempts that may run at once")
	return cmd
}

// requiredNamespace gives every command below cmd the flag --namespace.
func requiredNamespace(cmd *cobra.Command) *string {
	namespace := cmd.PersistentFlags().String("namespace", "", "name of the namespace (required)")
	_ = cmd.MarkPersistentFlagRequired("namespace") // fails only for a flag that is not there
	return namespace
}

func createNamed(dsn Source, use, short string, create func(ctx context.Context, s *store.Store, name string) (ids.ID, error)) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), dsn, func(s *store.Store) error {
				id, err := create(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				made := struct {
					ID ids.ID `json:"id"`
				}{id}
				return out.print(cmd.OutOrStdout(), made, func(w io.Writer) { fmt.Fprintln(w, id) })
			})
		},
	}
	out.add(cmd)
	return cmd
}

func listNamed(dsn Source, short string, list func(ctx context.Context, s *store.Store) ([]store.Named, error)) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "list", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), dsn, func(s *store.Store) error {
				rows, err := list(cmd.Context(), s)
				if err != nil {
					return err
				}
				if rows == nil {
					rows = []store.Named{}
				}
				return out.print(cmd.OutOrStdout(), rows, func(w io.Writer) {
					table(w, "ID\tNAME\tCREATED", rows, func(n store.Named) string {
						return fmt.Sprintf("%s\t%s\t%s", n.ID, n.Name, n.CreatedAt.Format(time.RFC3339))
					})
				})
			})
		},
	}
	out.add(cmd)
	return cmd
}

// table writes aligned columns; cells are separated by tabs.
func table[T any](w io.Writer, head string, rows []T, line func(T) string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, head)
	for _, row := range rows {
		fmt.Fprintln(t, line(row))
	}
	_ = t.Flush() // writing to a terminal that has gone is nobody's loss
}
