package store_test

import (
	"flag"
	"os"
	"testing"

	_ "pgregory.net/rapid" // registers its flags

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// modelChecks is how many random histories a model test plays unless -rapid.checks says otherwise:
// each makes hundreds of durable transactions.
const modelChecks = "20"

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", modelChecks); err != nil {
		panic(err)
	}
	os.Exit(storetest.Main(m))
}

var accessAll = access.Actions
