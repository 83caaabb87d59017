package admin

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

func bootstrapCommand(dsn Source) *cobra.Command {
	var (
		b           store.Bootstrap
		lease       time.Duration
		eventAccess bool
		out         output
	)
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make a namespace with an application, a queue and a credential, and print the token once",
		Long: "Make a namespace with an application, a queue and a credential, in one transaction. The credential gets every\n" +
			"action but the three for events; --event-access adds them. Its token is printed once and cannot be shown again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if lease%time.Millisecond != 0 || lease <= 0 {
				return fmt.Errorf("--lease-duration must be whole milliseconds above 0, is %s", lease)
			}
			b.Queue.LeaseDurationMS = int(lease / time.Millisecond)
			b.Actions = bootstrapActions(eventAccess)
			return withStore(cmd.Context(), dsn, func(s *store.Store) error {
				made, err := s.Bootstrap(cmd.Context(), b)
				if err != nil {
					return err
				}
				return out.print(cmd.OutOrStdout(), bootstrapped(made), func(w io.Writer) { printBootstrap(w, b, made) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.Namespace, "namespace", "default", "name of the namespace")
	f.StringVar(&b.Application, "application", "default", "name of the application")
	f.StringVar(&b.Queue.Name, "queue", "default", "name of the queue")
	f.StringVar(&b.Credential, "credential", "bootstrap", "name of the credential")
	f.BoolVar(&eventAccess, "event-access", false, "grant events:manage, events:read and events:consume too")
	f.BoolVar(&b.AllQueues, "all-queues", false, "let the credential use every queue of the namespace, not only this one")
	f.DurationVar(&lease, "lease-duration", queue.DefaultLease, "how long a worker holds a task of the queue")
	out.add(cmd)
	return cmd
}

func bootstrapActions(eventAccess bool) []access.Action {
	var actions []access.Action
	for _, a := range access.Actions {
		if eventAccess || !a.IsEvent() {
			actions = append(actions, a)
		}
	}
	return actions
}

type bootstrapJSON struct {
	NamespaceID   ids.ID `json:"namespace_id"`
	ApplicationID ids.ID `json:"application_id"`
	QueueID       ids.ID `json:"queue_id"`
	CredentialID  ids.ID `json:"credential_id"`
	Token         string `json:"token"`
}

func bootstrapped(m store.Bootstrapped) bootstrapJSON {
	return bootstrapJSON{m.NamespaceID, m.ApplicationID, m.QueueID, m.CredentialID, m.Token}
}

func printBootstrap(w io.Writer, b store.Bootstrap, m store.Bootstrapped) {
	fmt.Fprintf(w, "namespace    %s  %s\n", m.NamespaceID, b.Namespace)
	fmt.Fprintf(w, "application  %s  %s\n", m.ApplicationID, b.Application)
	fmt.Fprintf(w, "queue        %s  %s\n", m.QueueID, b.Queue.Name)
	fmt.Fprintf(w, "credential   %s  %s\n", m.CredentialID, b.Credential)
	fmt.Fprintf(w, "actions      %s\n", access.JoinActions(b.Actions))
	fmt.Fprintf(w, "token        %s\n", m.Token)
	fmt.Fprintln(w, "\nKeep the token now: only its digest is stored, so it cannot be shown again.")
}
