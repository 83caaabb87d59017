package main

import (
	"slices"
	"time"
)

// spread returns the lowest, the median and the highest.
func spread(v []float64) (lo, mid, hi float64) {
	s := slices.Clone(v)
	slices.Sort(s)
	return s[0], s[len(s)/2], s[len(s)-1]
}

// percentiles returns p50 and p99 in milliseconds.
func percentiles(name string, d []time.Duration) []metric {
	slices.Sort(d)
	at := func(p int) float64 { return float64(d[min(len(d)-1, len(d)*p/100)].Microseconds()) / 1000 }
	return []metric{{name + " p50", at(50), "ms"}, {name + " p99", at(99), "ms"}}
}

func perSecond(name string, n int, d time.Duration) metric {
	return metric{name, float64(n) / d.Seconds(), "1/s"}
}
