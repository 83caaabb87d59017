package store

import (
	"fmt"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// blockers is what stands in the way of a retirement, kind by kind, in the order of the contract.
type blockers []string

// add names n of a kind, if there are any; counts stop at CountLimit.
func (b *blockers) add(n int, one, many string) {
	switch {
	case n == 1:
		*b = append(*b, "1 "+one)
	case n >= CountLimit:
		*b = append(*b, fmt.Sprintf("%d or more %s", CountLimit, many))
	case n > 0:
		*b = append(*b, fmt.Sprintf("%d %s", n, many))
	}
}

// refuse is RESOURCE_BUSY with all of them together, nil without any.
func (b *blockers) refuse(resource, what string) error {
	if len(*b) == 0 {
		return nil
	}
	return errs.New(errs.ResourceBusy, "%s still has %s; nothing was changed: %s, then repeat with the same key", resource, strings.Join(*b, ", "), what)
}
