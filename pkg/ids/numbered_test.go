package ids_test

import (
	"math"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

func TestNumberedIDs(t *testing.T) {
	seen := map[ids.ID]bool{}
	last := ids.New()
	for _, n := range []uint64{0, 1, 1, 1, 1 << 53, math.MaxUint64, 1} {
		id := ids.NewNumbered(n)
		if id.Number() != n {
			t.Errorf("%s carries %d, not %d", id, id.Number(), n)
		}
		if seen[id] {
			t.Errorf("%s came twice", id)
		}
		if string(id[:8]) <= string(last[:8]) {
			t.Errorf("%s is not after %s", id, last)
		}
		seen[id], last = true, id
	}
}
