package orbittest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

// stack is the real one that all tests here share; bin is where its programs are.
var (
	stack *orbittest.Stack
	bin   string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	switch os.Getenv(childRole) {
	case "drain":
		return drainingChild()
	case "owner":
		return owningChild()
	}
	var err error
	if bin, err = programs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stack, err = orbittest.Open(context.Background(), orbittest.Options{Bin: bin, Private: true, Env: []string{"ORBIT_GATEWAY_EVENT_CONNS=2000"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := stack.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// programs are those of ORBIT_BIN, or built from this checkout.
func programs() (string, error) {
	if bin := os.Getenv("ORBIT_BIN"); bin != "" {
		return bin, nil
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		return "", err
	}
	build := exec.Command("make", "-C", filepath.Dir(bin), "build")
	build.Stderr = os.Stderr
	return bin, build.Run()
}
