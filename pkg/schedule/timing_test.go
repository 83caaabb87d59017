package schedule

import (
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

func timingOf(t testing.TB, cron, zone string) *Timing {
	t.Helper()
	timing, err := (&Spec{Cron: cron, TimeZone: zone}).Timing()
	if err != nil {
		t.Fatalf("%s in %s: %v", cron, zone, err)
	}
	return timing
}

// TestChangesOfTheClock is F1: each row begins before a change of the clock and lists what fires next,
// on the wall with its offset.
func TestChangesOfTheClock(t *testing.T) {
	t.Parallel()
	const newYork, berlin, lordHowe, santiago, cairo, kolkata = "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Cairo", "Asia/Kolkata"
	for _, c := range []struct {
		name, zone, cron, after string
		want                    []string
	}{
		{"a fixed time in the gap fires at its end", newYork, "30 2 * * *", "2027-03-13T00:00:00-05:00", []string{
			"2027-03-13T02:30:00-05:00", "2027-03-14T03:00:00-04:00", "2027-03-15T02:30:00-04:00"}},
		{"a fixed time that is repeated fires once", newYork, "30 1 * * *", "2026-10-31T12:00:00-04:00", []string{
			"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		{"and not again when asked in between", newYork, "30 1 * * *", "2026-11-01T01:45:00-04:00", []string{"2026-11-02T01:30:00-05:00"}},
		{"nor in the repeated hour", newYork, "30 1 * * *", "2026-11-01T01:10:00-05:00", []string{"2026-11-02T01:30:00-05:00"}},
		{"every quarter over the gap", newYork, "*/15 * * * *", "2027-03-14T01:20:00-05:00", []string{
			"2027-03-14T01:30:00-05:00", "2027-03-14T01:45:00-05:00", "2027-03-14T03:00:00-04:00", "2027-03-14T03:15:00-04:00"}},
		{"every quarter over the repeated hour", newYork, "*/15 * * * *", "2026-11-01T01:29:00-04:00", []string{
			"2026-11-01T01:30:00-04:00", "2026-11-01T01:45:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:15:00-05:00",
			"2026-11-01T01:30:00-05:00", "2026-11-01T01:45:00-05:00", "2026-11-01T02:00:00-05:00"}},
		{"every hour keeps its hour over the gap", newYork, "30 * * * *", "2027-03-14T01:00:00-05:00", []string{
			"2027-03-14T01:30:00-05:00", "2027-03-14T03:30:00-04:00"}},
		{"every hour, spelled out", newYork, "30 0-23 * * *", "2026-11-01T01:00:00-04:00", []string{
			"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:30:00-05:00"}},
		{"all of an hour in the gap is one", newYork, "*/15 2 * * *", "2027-03-14T00:00:00-05:00", []string{
			"2027-03-14T03:00:00-04:00", "2027-03-15T02:00:00-04:00"}},
		{"and one with what fires there anyhow", newYork, "*/30 2,3 * * *", "2027-03-14T00:00:00-05:00", []string{
			"2027-03-14T03:00:00-04:00", "2027-03-14T03:30:00-04:00", "2027-03-15T02:00:00-04:00"}},
		{"every other hour names its hours", berlin, "0 */2 * * *", "2026-10-25T00:30:00+02:00", []string{
			"2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"}},
		{"the first minute after the gap is no gap", newYork, "0 3 * * *", "2027-03-14T00:00:00-05:00", []string{
			"2027-03-14T03:00:00-04:00", "2027-03-15T03:00:00-04:00"}},
		{"the last minute before it", newYork, "59 1 * * *", "2027-03-14T00:00:00-05:00", []string{"2027-03-14T01:59:00-05:00", "2027-03-15T01:59:00-04:00"}},
		{"Berlin, gap", berlin, "30 2 * * *", "2027-03-27T12:00:00+01:00", []string{"2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"}},
		{"Berlin, repeated", berlin, "30 2 * * *", "2026-10-24T12:00:00+02:00", []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"half an hour of gap", lordHowe, "15 2 * * *", "2026-10-03T12:00:00+10:30", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"after half an hour of gap", lordHowe, "45 2 * * *", "2026-10-03T12:00:00+10:30", []string{"2026-10-04T02:45:00+11:00"}},
		{"half an hour twice", lordHowe, "45 1 * * *", "2027-04-03T12:00:00+11:00", []string{"2027-04-04T01:45:00+11:00", "2027-04-05T01:45:00+10:30"}},
		{"every quarter, half an hour twice", lordHowe, "*/15 * * * *", "2027-04-04T01:31:00+11:00", []string{
			"2027-04-04T01:45:00+11:00", "2027-04-04T01:30:00+10:30", "2027-04-04T01:45:00+10:30", "2027-04-04T02:00:00+10:30"}},
		{"midnight in the gap", santiago, "0 0 * * *", "2026-09-05T12:00:00-04:00", []string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"}},
		{"a Sunday's midnight in the gap", santiago, "30 0 * * SUN", "2026-09-05T12:00:00-04:00", []string{"2026-09-06T01:00:00-03:00", "2026-09-13T00:30:00-03:00"}},
		{"the hour before midnight twice", santiago, "30 23 * * *", "2027-04-03T12:00:00-03:00", []string{"2027-04-03T23:30:00-03:00", "2027-04-04T23:30:00-04:00"}},
		{"Cairo's midnight", cairo, "0 0 * * *", "2027-04-29T12:00:00+02:00", []string{"2027-04-30T01:00:00+03:00", "2027-05-01T00:00:00+03:00"}},
		{"a zone without changes", kolkata, "30 2 * * *", "2027-03-13T12:00:00+05:30", []string{"2027-03-14T02:30:00+05:30", "2027-03-15T02:30:00+05:30"}},
		{"UTC", "UTC", "30 2 * * *", "2027-03-13T12:00:00Z", []string{"2027-03-14T02:30:00+00:00"}},
		{"a day that was left out", "Pacific/Apia", "0 12 * * *", "2011-12-29T13:00:00-10:00", []string{"2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"}},
		{"29 February", "UTC", "0 0 29 2 *", "2027-01-01T00:00:00Z", []string{"2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"}},
		{"29 February around 2100", berlin, "0 0 29 2 *", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00+01:00"}},
		{"the last hours of a leap year", newYork, "0 * * * *", "2028-12-31T21:30:00-05:00", []string{
			"2028-12-31T22:00:00-05:00", "2028-12-31T23:00:00-05:00", "2029-01-01T00:00:00-05:00"}},
		{"the last day of a leap year", berlin, "30 12 31 12 *", "2028-12-31T02:00:00+01:00", []string{"2028-12-31T12:30:00+01:00", "2029-12-31T12:30:00+01:00"}},
		{"a summer's leap year", santiago, "0 0 1 1 *", "2028-12-31T12:00:00-03:00", []string{"2029-01-01T00:00:00-03:00"}},
		{"day of month or day of week", "UTC", "0 0 13 * FRI", "2026-11-10T00:00:00Z", []string{
			"2026-11-13T00:00:00+00:00", "2026-11-20T00:00:00+00:00", "2026-11-27T00:00:00+00:00", "2026-12-04T00:00:00+00:00",
			"2026-12-11T00:00:00+00:00", "2026-12-13T00:00:00+00:00"}},
		{"strictly after", "UTC", "0 12 * * *", "2026-11-10T12:00:00Z", []string{"2026-11-11T12:00:00+00:00"}},
		{"a moment before", "UTC", "0 12 * * *", "2026-11-10T11:59:59.999999999Z", []string{"2026-11-10T12:00:00+00:00"}},
	} {
		after, err := time.Parse(time.RFC3339Nano, c.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range timingOf(t, c.cron, c.zone).Preview(after, len(c.want)) {
			got = append(got, u.LocalTime)
			if at, err := time.Parse(time.RFC3339, u.LocalTime); err != nil || !at.Equal(u.FireAt) {
				t.Errorf("%s: %s is not %s", c.name, u.LocalTime, u.FireAt)
			}
		}
		if strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s: %s in %s after %s\n got %v\nwant %v", c.name, c.cron, c.zone, c.after, got, c.want)
		}
	}
}

func TestEveryIsCountedFromTheEpoch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every       int
		after, want string
	}{
		{5, "2026-11-01T00:00:00Z", "2026-11-01T00:00:05Z"},
		{5, "2026-11-01T00:00:04.999999Z", "2026-11-01T00:00:05Z"},
		{1, "2026-11-01T00:00:00.5Z", "2026-11-01T00:00:01Z"},
		{86400, "2026-11-01T12:00:00Z", "2026-11-02T00:00:00Z"},
		{MaxEvery, "1970-01-01T00:00:00Z", "1971-01-02T00:00:00Z"},
		{7, "1969-12-31T23:59:58Z", "1970-01-01T00:00:00Z"},
	} {
		timing, err := (&Spec{Every: c.every, TimeZone: "America/New_York"}).Timing()
		if err != nil {
			t.Fatal(err)
		}
		after, _ := time.Parse(time.RFC3339Nano, c.after)
		if got := timing.Next(after).Format(time.RFC3339Nano); got != c.want {
			t.Errorf("every %d s after %s: %s, want %s", c.every, c.after, got, c.want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec  Spec
		field string // "" for accepted
		text  string
	}{
		{Spec{Cron: "0 0 31 2 *"}, "cron", "never fires"},
		{Spec{Cron: "0 0 30,31 2 *"}, "cron", "never fires"},
		{Spec{Cron: "0 0 31 4,6,9,11 *"}, "cron", "never fires"},
		{Spec{Cron: "0 0 31 2 MON"}, "", ""}, // or on Mondays
		{Spec{Cron: "0 0 29 2 *"}, "", ""},
		{Spec{Cron: "* * * *"}, "cron", "must have 5 fields"},
		{Spec{Cron: "0 * * * * *"}, "cron", "must have 5 fields"},
		{Spec{Cron: "@daily"}, "cron", "must have 5 fields"},
		{Spec{Cron: "   "}, "cron", "must have 5 fields"},
		{Spec{Cron: "TZ=UTC * * * *"}, "cron", "takes no zone"},
		{Spec{Cron: "TZ= * * * *"}, "cron", "takes no zone"},
		{Spec{Cron: "CRON_TZ=UTC 0 * * * *"}, "cron", "must have 5 fields"},
		{Spec{Cron: "60 * * * *"}, "cron", "end of range (60)"},
		{Spec{Cron: "59 23 31 12 6"}, "", ""},
		{Spec{Cron: "* 24 * * *"}, "cron", "end of range (24)"},
		{Spec{Cron: "* * 0 * *"}, "cron", "beginning of range (0)"},
		{Spec{Cron: "* * 32 * *"}, "cron", "end of range (32)"},
		{Spec{Cron: "* * * 13 *"}, "cron", "end of range (13)"},
		{Spec{Cron: "* * * * 7"}, "cron", "end of range (7)"},
		{Spec{Cron: "* * * JAN,dec sun-sat"}, "", ""},
		{Spec{Cron: "*/0 * * * *"}, "cron", "step of range"},
		{Spec{Cron: "-1 * * * *"}, "cron", ""},
		{Spec{Cron: "5-1 * * * *"}, "cron", ""},
		{Spec{Cron: "a * * * *"}, "cron", ""},
		{Spec{Cron: "99999999999999999999 * * * *"}, "cron", ""},
		{Spec{Cron: strings.Repeat("1,", 124) + "1 * * * *"}, "cron", "must be at most 256 bytes, has 257"},
		{Spec{Cron: strings.Repeat("1,", 123) + "11 * * * *"}, "", ""}, // 256
		{Spec{}, "cron", "exactly one"},
		{Spec{Cron: "* * * * *", Every: 5}, "cron", "exactly one"},
		{Spec{Every: -1}, "every", "must be 1…31622400"},
		{Spec{Every: 1}, "", ""},
		{Spec{Every: 31622400}, "", ""},
		{Spec{Every: 31622401}, "every", "must be 1…31622400"},
		{Spec{Every: 5, TimeZone: "Mars/Olympus"}, "time_zone", ""},
		{Spec{Every: 5, TimeZone: "Local"}, "time_zone", ""},
		{Spec{Every: 5, TimeZone: "localtime"}, "time_zone", ""},
		{Spec{Every: 5, TimeZone: "../etc/passwd"}, "time_zone", ""},
		{Spec{Every: 5, TimeZone: "/usr/share/zoneinfo/UTC"}, "time_zone", ""},
		{Spec{Every: 5, TimeZone: "right/UTC"}, "time_zone", ""},
		{Spec{Every: 5, TimeZone: "EST"}, "", ""},
		{Spec{Every: 5, TimeZone: strings.Repeat("A", 65)}, "time_zone", ""},
		{Spec{Every: 5, CatchUp: "some"}, "catch_up", ""},
		{Spec{Every: 5, CatchUp: "all"}, "", ""},
		{Spec{Every: 5, Task: &Template{}}, "task.input", "is required"},
		{Spec{Every: 5, Task: &Template{Input: []byte("1"), Priority: 101}}, "task.priority", ""},
		{Spec{Every: 5, Task: &Template{Input: []byte("1"), MaxAttempts: 101}}, "task.max_attempts", ""},
		{Spec{Every: 5, Task: &Template{Input: []byte("1"), RetrySafety: "maybe"}}, "task.retry_safety", ""},
		{Spec{Every: 5, Task: &Template{Input: []byte("1"), Labels: map[string]string{"a": ""}}}, "task.labels.a", ""},
	} {
		s := c.spec
		if s.Task == nil {
			s.Task = &Template{Input: []byte("1")}
		}
		err := s.normalise()
		if c.field == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.spec, err)
			}
			continue
		}
		if !errs.Is(err, errs.InvalidArgument) || !strings.HasPrefix(errs.MessageOf(err), c.field+": "+c.text) {
			t.Errorf("%+v: %v, want %s: %s", c.spec, err, c.field, c.text)
		}
	}
	s := Spec{Cron: "  0   0 * * * ", Task: &Template{Input: []byte("1")}}
	if err := s.normalise(); err != nil || s.Cron != "0 0 * * *" || s.TimeZone != "UTC" || s.CatchUp != "skip" || s.Task.MaxAttempts != 3 || s.Task.RetrySafety != "unsafe" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := (&Spec{Every: 5}).normalise(); err == nil || !strings.HasPrefix(errs.MessageOf(err), "task: ") {
		t.Error(err)
	}
}
