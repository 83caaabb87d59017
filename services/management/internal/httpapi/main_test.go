package httpapi

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) {
	code := storetest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
