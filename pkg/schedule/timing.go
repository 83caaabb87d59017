package schedule

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// Timing computes fire times; it is immutable.
//
// A cron expression is matched against the wall clock of the zone. Where the hour is a wildcard, every
// instant whose wall clock matches is a fire time: nothing in a spring-forward gap, and twice in the
// hour that a fall-back repeats, so that intervals stay real. Where hours are named, each wall time
// that matches fires once: at its first occurrence when it is repeated, and at the end of the gap when
// it does not exist.
type Timing struct {
	zone  *time.Location
	every time.Duration      // or
	spec  *cron.SpecSchedule // of the wall clock, as if it were UTC
	wild  bool               // the hour is a wildcard
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

const allHours = 1<<24 - 1

func parseCron(text string, zone *time.Location) (*Timing, error) {
	if len(text) > MaxCron {
		return nil, errs.Invalid("cron", "must be at most %d bytes, has %d", MaxCron, len(text))
	}
	if n := len(strings.Fields(text)); n != 5 {
		return nil, errs.Invalid("cron", "must have 5 fields (minute, hour, day of month, month, day of week), has %d", n)
	}
	if strings.Contains(text, "=") {
		return nil, errs.Invalid("cron", "takes no zone; time_zone does")
	}
	parsed, err := parser.Parse(text)
	spec, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, errs.Invalid("cron", "%v (minute 0–59, hour 0–23, day of month 1–31, month 1–12 or JAN–DEC, day of week 0–6 or SUN–SAT)", err)
	}
	spec.Location = time.UTC
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() { // two leap days ahead
		return nil, errs.Invalid("cron", "never fires: no month that it names has such a day")
	}
	return &Timing{zone: zone, spec: spec, wild: spec.Hour&allHours == allHours}, nil
}

// maxPeriods bounds the periods of constant offset that a search crosses: some zones have six a year,
// and 29 February may be eight years away.
const maxPeriods = 100

// Next returns the first fire time after a moment, in UTC; zero when there is none.
func (t *Timing) Next(after time.Time) time.Time {
	if t.every > 0 {
		return nextMultiple(after, t.every)
	}
	// One period of constant offset after the other. Within one, the wall clock is a clock like any other.
	for at, inclusive, n := after.In(t.zone), false, 0; n < maxPeriods; n++ {
		begin, end := bounds(at)
		from := wallClock(at)
		if inclusive {
			from = from.Add(-1)
		}
		if !t.wild && !begin.IsZero() {
			// What this period repeats of the one before has fired there.
			_, before := begin.Add(-1).Zone()
			if fresh := begin.UTC().Add(time.Duration(before)*time.Second - 1); fresh.After(from) {
				from = fresh
			}
		}
		wall := t.nextWall(from)
		if wall.IsZero() {
			return wall
		}
		_, offset := at.Zone()
		fire := wall.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || fire.Before(end) {
			return fire
		}
		if !t.wild && wall.Before(wallClock(end)) { // in the gap
			return end.UTC()
		}
		at, inclusive = end, true
	}
	return time.Time{}
}

// bounds is ZoneBounds mended: on the last day of a leap year it may end the period before the time that
// was asked about, since it takes every year for 365 days (go1.26). No zone changes on New Year's Eve.
func bounds(at time.Time) (begin, end time.Time) {
	begin, end = at.ZoneBounds()
	if !end.IsZero() && !end.After(at) {
		end = at.Add(25 * time.Hour)
	}
	return begin, end
}

// wallClock is what the clock on the wall shows, as a time in UTC.
func wallClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// nextWall looks eight years and more ahead; the parser's own search gives up after five.
func (t *Timing) nextWall(after time.Time) time.Time {
	for range 3 {
		if next := t.spec.Next(after); !next.IsZero() {
			return next
		}
		after = after.AddDate(4, 0, 0)
	}
	return time.Time{}
}

func nextMultiple(after time.Time, every time.Duration) time.Time {
	step := int64(every / time.Second)
	n := after.Unix() / step
	if after.Unix() < 0 && after.Unix()%step != 0 {
		n--
	}
	return time.Unix((n+1)*step, 0).UTC()
}

// Preview returns the next n fire times after a moment.
func (t *Timing) Preview(after time.Time, n int) []Upcoming {
	out := make([]Upcoming, 0, n)
	for at := t.Next(after); len(out) < n && !at.IsZero(); at = t.Next(at) {
		out = append(out, Upcoming{FireAt: at, LocalTime: at.In(t.zone).Format("2006-01-02T15:04:05-07:00")})
	}
	return out
}
