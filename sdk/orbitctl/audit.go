package main

import (
	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func auditCommand(a *app) *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "audit", Short: "List what was written, newest first", Args: exactly(0)}
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		return list(a, client.AllAudit(c.Context()), limit, "AT ACTION KIND RESOURCE CREDENTIAL REQUEST DETAIL", func(e orbit.AuditEntry) []string {
			return []string{stamp(e.At), e.Action, e.ResourceKind, e.ResourceID, firstOf(e.CredentialID, "(operator)"), e.RequestID, string(e.Detail)}
		})
	}
	return c
}
