package httpapi

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" { // the targets need no database; run them with -run '^$'
		os.Exit(m.Run())
	}
	code := storetest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
