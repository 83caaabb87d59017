// Zones is built by a test and run where there are no zone files: it prints the next fire times of the
// expression and the zone in its arguments.
package main

import (
	"fmt"
	"os"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

func main() {
	spec := schedule.Spec{Cron: os.Args[1], TimeZone: os.Args[2]}
	timing, err := spec.Timing()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, up := range timing.Preview(time.Date(2027, 3, 13, 12, 0, 0, 0, time.UTC), 2) {
		fmt.Println(up.LocalTime)
	}
}
