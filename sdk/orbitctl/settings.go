package main

import (
	"bytes"
	"io"
	"os"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

const settingsHelp = `Operate Orbit from a shell.

Environment:
  ORBIT_MANAGEMENT_URL   the management service, like https://orbit.example.com (or --management-url)
  ORBIT_GATEWAY_URL      the gateway (or --gateway-url); used by consume, worker, bench and doctor
  ORBIT_TOKEN            the token
  ORBIT_TOKEN_FILE       or the file that holds it (or --token-file, which wins over both)

A token is never taken from a flag's value, because other users of the machine can read those.
"orbitctl help exit-codes" lists the exit codes.`

// app is what every command shares: the streams and the global flags.
type app struct {
	in   io.Reader
	out  io.Writer
	errs io.Writer

	management string
	gateway    string
	tokenFile  string
	format     string
	insecure   bool
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func (a *app) managementURL() (string, error) {
	if u := firstOf(a.management, os.Getenv("ORBIT_MANAGEMENT_URL")); u != "" {
		return u, nil
	}
	return "", usage("no management address: set ORBIT_MANAGEMENT_URL or --management-url")
}

func (a *app) gatewayURL() (string, error) {
	if u := firstOf(a.gateway, os.Getenv("ORBIT_GATEWAY_URL")); u != "" {
		return u, nil
	}
	return "", usage("no gateway address: set ORBIT_GATEWAY_URL or --gateway-url")
}

// token reads the token: --token-file, ORBIT_TOKEN, ORBIT_TOKEN_FILE, in this order.
func (a *app) token() (string, error) {
	file := a.tokenFile
	if file == "" {
		if t := os.Getenv("ORBIT_TOKEN"); t != "" {
			return t, nil
		}
		file = os.Getenv("ORBIT_TOKEN_FILE")
	}
	if file == "" {
		return "", usage("no token: set ORBIT_TOKEN, ORBIT_TOKEN_FILE or --token-file")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usage("token file: %v", err)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return "", usage("token file %s is empty", file)
	}
	return string(text), nil
}

// client is for the management service.
func (a *app) client(opts ...orbit.Option) (*orbit.Client, error) {
	url, err := a.managementURL()
	if err != nil {
		return nil, err
	}
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	if a.insecure {
		opts = append(opts, orbit.WithInsecureHTTP())
	}
	return orbit.NewClient(url, token, opts...)
}

// socket is what a connection to the gateway needs.
func (a *app) socket() (url, token string, err error) {
	if url, err = a.gatewayURL(); err != nil {
		return "", "", err
	}
	token, err = a.token()
	return url, token, err
}
