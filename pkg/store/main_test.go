package store_test

import (
	"os"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
