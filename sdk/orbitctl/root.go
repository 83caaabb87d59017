package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build (-ldflags "-X main.version=…").
var version = "dev"

// newRoot builds the whole command tree.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "orbitctl",
		Short:         "Operate Orbit: queues, tasks, subscriptions, deliveries, schedules, flows",
		Long:          settingsHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	f := root.PersistentFlags()
	f.StringVar(&a.management, "management-url", "", "the management service (default $ORBIT_MANAGEMENT_URL)")
	f.StringVar(&a.gateway, "gateway-url", "", "the gateway (default $ORBIT_GATEWAY_URL)")
	f.StringVar(&a.tokenFile, "token-file", "", "file that holds the token (default $ORBIT_TOKEN_FILE); a token is never a flag's value")
	f.StringVarP(&a.format, "output", "o", "table", "table or json")
	f.BoolVar(&a.insecure, "insecure-http", false, "send the token over plain http to other hosts than loopback too")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errs)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%v", err) })
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if a.format != "table" && a.format != "json" {
			return usage("--output: must be table or json, not %q", a.format)
		}
		return nil
	}
	root.AddCommand(queueCommand(a), taskCommand(a), subscriptionCommand(a), deliveryCommand(a), scheduleCommand(a), flowCommand(a), runCommand(a), retireCommand(a),
		consumeCommand(a), workerCommand(a),
		auditCommand(a), benchCommand(a), doctorCommand(a), versionCommand(a),
		&cobra.Command{Use: "exit-codes", Short: "What each exit code means", Long: exitCodesHelp})
	return root
}

// group is a command that only holds others; a word it does not know is a usage error.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%s has no command %q; see %s --help", c.CommandPath(), args[0], c.CommandPath())
		}
		return c.Help()
	}}
	c.AddCommand(children...)
	return c
}

// exactly is cobra.ExactArgs with our exit code.
func exactly(n int) cobra.PositionalArgs { return argsCheck(cobra.ExactArgs(n)) }

func argsCheck(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage("%v; usage: %s", err, c.UseLine())
		}
		return nil
	}
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print orbitctl's version", Args: exactly(0), RunE: func(*cobra.Command, []string) error {
		v := map[string]string{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					v["revision"] = s.Value
				}
			}
		}
		return a.show(v, func() {
			fmt.Fprintf(a.out, "orbitctl %s (%s, %s)\n", v["version"], v["go"], v["platform"])
		})
	}}
}
