package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/migrations"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

func migrateCommand(dsn Source) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Bring the schema to this binary's version, or show it"}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "up",
			Short: "Apply what is missing; any number may run at once, and a killed run is resumed",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				text, err := dsn()
				if err != nil {
					return err
				}
				version, err := store.Migrate(cmd.Context(), text)
				if err != nil {
					return shown(err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "schema version %d\n", version)
				return err
			},
		},
		&cobra.Command{
			Use:   "version",
			Short: "Print the database's version and the one this binary needs",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				text, err := dsn()
				if err != nil {
					return err
				}
				version, dirty, err := store.SchemaVersion(cmd.Context(), text)
				if err != nil {
					return shown(err)
				}
				state := ""
				if dirty {
					state = ", half applied: run migrate up to finish it"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "database %d, binary %d%s\n", version, migrations.Latest(), state)
				return err
			},
		},
	)
	return cmd
}
