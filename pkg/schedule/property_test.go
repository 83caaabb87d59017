package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// field is one field of a random expression and the values it stands for.
type field struct {
	text   string
	values []int
}

func (f field) has(v int) bool { return slices.Contains(f.values, v) }

func drawField(t *rapid.T, name string, lo, hi int) field {
	f := field{}
	add := func(from, to, step int) {
		for v := from; v <= to; v += step {
			f.values = append(f.values, v)
		}
	}
	switch rapid.IntRange(0, 4).Draw(t, name) {
	case 0, 1:
		f.text = "*"
		add(lo, hi, 1)
	case 2:
		step := rapid.IntRange(2, 20).Draw(t, name+" step")
		f.text = fmt.Sprintf("*/%d", step)
		add(lo, hi, step)
	case 3:
		from := rapid.IntRange(lo, hi).Draw(t, name+" from")
		to := rapid.IntRange(from, hi).Draw(t, name+" to")
		f.text = fmt.Sprintf("%d-%d", from, to)
		add(from, to, 1)
	case 4:
		f.values = rapid.SliceOfNDistinct(rapid.IntRange(lo, hi), 1, 3, rapid.ID[int]).Draw(t, name+" list")
		var texts []string
		for _, v := range f.values {
			texts = append(texts, strconv.Itoa(v))
		}
		f.text = strings.Join(texts, ",")
	}
	return f
}

// changes are moments shortly before a change of a clock.
var changes = []struct{ zone, before string }{
	{"America/New_York", "2027-03-13T20:00:00Z"}, {"America/New_York", "2026-10-31T20:00:00Z"},
	{"Europe/Berlin", "2027-03-27T12:00:00Z"}, {"Europe/Berlin", "2026-10-24T12:00:00Z"},
	{"Australia/Lord_Howe", "2026-10-03T02:00:00Z"}, {"Australia/Lord_Howe", "2027-04-03T02:00:00Z"},
	{"America/Santiago", "2026-09-05T12:00:00Z"}, {"America/Santiago", "2027-04-03T12:00:00Z"},
	{"Africa/Cairo", "2027-04-29T06:00:00Z"}, {"Africa/Cairo", "2026-10-29T06:00:00Z"},
	{"Europe/Berlin", "2028-12-31T00:00:00Z"}, {"America/Santiago", "2032-12-31T00:00:00Z"},
	{"Africa/Casablanca", "2027-02-06T12:00:00Z"}, {"Asia/Kolkata", "2027-03-27T12:00:00Z"}, {"Pacific/Apia", "2011-12-29T12:00:00Z"},
}

// The fire times of random expressions around changes of the clock are those of a minute-by-minute
// search that follows the rule's words and nothing else: none is missed, none comes twice.
func TestFireTimesEqualASearchOfEveryMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(changes).Draw(t, "change")
		minute, hour := drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23)
		dom, dow := drawField(t, "day of month", 1, 31), drawField(t, "day of week", 0, 6)
		text := strings.Join([]string{minute.text, hour.text, dom.text, "*", dow.text}, " ")
		timing, err := (&Spec{Cron: text, TimeZone: c.zone}).Timing()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		matches := func(wall time.Time) bool {
			day := dom.has(wall.Day()) && dow.has(int(wall.Weekday()))
			if dom.text != "*" && dow.text != "*" {
				day = dom.has(wall.Day()) || dow.has(int(wall.Weekday()))
			}
			return day && hour.has(wall.Hour()) && minute.has(wall.Minute())
		}
		before, _ := time.Parse(time.RFC3339, c.before)
		begin := before.Add(time.Duration(rapid.IntRange(0, 1200).Draw(t, "minutes")) * time.Minute)
		end := begin.Add(36 * time.Hour)
		want := search(timing.zone, begin, end, len(hour.values) == 24, matches)
		var got []time.Time
		for at := timing.Next(begin); !at.IsZero() && !at.After(end); at = timing.Next(at) {
			if len(got) > 0 && !at.After(got[len(got)-1]) {
				t.Fatalf("%s: %s follows %s", text, at, got[len(got)-1])
			}
			got = append(got, at)
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%s in %s from %s\n got %v\nwant %v", text, c.zone, begin, got, want)
		}
	})
}

// search looks at every minute from a day before begin, so that it knows what was repeated.
func search(zone *time.Location, begin, end time.Time, wild bool, matches func(wall time.Time) bool) []time.Time {
	var out []time.Time
	seen := map[time.Time]bool{}
	var last time.Time
	for at := begin.Add(-48 * time.Hour).Truncate(time.Minute); !at.After(end); at = at.Add(time.Minute) {
		local := at.In(zone)
		wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
		fires := matches(wall) && (wild || !seen[wall])
		if !wild && !last.IsZero() {
			for missing := last.Add(time.Minute); missing.Before(wall); missing = missing.Add(time.Minute) {
				fires = fires || matches(missing) && !seen[missing]
			}
		}
		seen[wall], last = true, wall
		if fires && at.After(begin) {
			out = append(out, at)
		}
	}
	return out
}

// What Due settles at random moments is each fire time exactly once, whatever catch_up says, and the
// parts it names are in order.
func TestDueSettlesEachFireTimeOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{TimeZone: "Europe/Berlin", Cron: "*/7 * * * *"}
		if rapid.Bool().Draw(t, "every") {
			spec.Cron, spec.Every = "", rapid.IntRange(1, 300).Draw(t, "seconds")
		}
		timing, err := spec.Timing()
		if err != nil {
			t.Fatal(err)
		}
		catchUp := rapid.SampledFrom([]CatchUp{CatchUpSkip, CatchUpOne, CatchUpAll}).Draw(t, "catch_up")
		now, _ := time.Parse(time.RFC3339, "2026-10-25T00:00:00Z")
		next := timing.Next(now)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			late := time.Duration(rapid.SampledFrom([]int{0, 1, 30, 60, 61, 600, 20_000}).Draw(t, "late")) * time.Second
			now = next.Add(late)
			p := timing.Due(next, now, catchUp)
			n := 0
			for at := next; !at.After(now); at = timing.Next(at) {
				switch {
				case n < p.Skipped:
					if n == 0 && !at.Equal(p.FirstSkipped) || n == p.Skipped-1 && !at.Equal(p.LastSkipped) {
						t.Fatalf("skips %s … %s, %d is %s", p.FirstSkipped, p.LastSkipped, n, at)
					}
				case !at.Equal(p.Fire[n-p.Skipped]):
					t.Fatalf("fires %v, not %s", p.Fire, at)
				}
				n++
			}
			want := map[CatchUp]int{CatchUpSkip: 0, CatchUpOne: 1, CatchUpAll: 100}[catchUp]
			if late <= OnTime {
				want = 100
			}
			if n != p.Skipped+len(p.Fire) || len(p.Fire) != min(want, n) || !p.Next.After(now) || !p.Next.Equal(timing.Next(now)) {
				t.Fatalf("%d due: %d skipped, %d fire, next %s after %s", n, p.Skipped, len(p.Fire), p.Next, now)
			}
			next = p.Next
		}
	})
}

// TestYearsOfDowntime: the count stops somewhere, the last ones still fire.
func TestYearsOfDowntime(t *testing.T) {
	t.Parallel()
	timing, err := (&Spec{Cron: "* * * * *", TimeZone: "UTC"}).Timing()
	if err != nil {
		t.Fatal(err)
	}
	next, _ := time.Parse(time.RFC3339, "2026-01-01T00:00:00Z")
	now := next.AddDate(9, 0, 0)
	p := timing.Due(next, now, CatchUpAll)
	if len(p.Fire) != MaxCatchUp || !p.Fire[99].Equal(now) || !p.Next.Equal(now.Add(time.Minute)) || p.Skipped < countLimit || !p.LastSkipped.Equal(p.Fire[0].Add(-time.Minute)) {
		t.Errorf("%d fire, the last at %s, %d skipped to %s", len(p.Fire), p.Fire[len(p.Fire)-1], p.Skipped, p.LastSkipped)
	}
}
