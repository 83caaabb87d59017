package schedule

import "time"

// OnTime is how late the oldest due fire time may be without being missed: a slow database or the
// failover to another replica is no downtime. catch_up decides only about what is later.
const OnTime = time.Minute

// Counting stops at countLimit and goes on countAgain before now; a schedule is not worth an hour's
// work, however long nothing ran.
const (
	countLimit = 1_000_000
	countAgain = 7 * 24 * time.Hour
)

// Plan settles all fire times of a schedule up to a moment.
type Plan struct {
	Fire         []time.Time // oldest first, at most MaxCatchUp
	Skipped      int         // this many before them do not fire,
	FirstSkipped time.Time   // from here
	LastSkipped  time.Time   // to here
	Next         time.Time   // the first that is not due; zero for never
}

// Due plans for a schedule whose oldest unsettled fire time is next, which is not after now.
func (t *Timing) Due(next, now time.Time, catchUp CatchUp) Plan {
	keep := MaxCatchUp
	if now.Sub(next) > OnTime {
		keep = map[CatchUp]int{CatchUpSkip: 0, CatchUpOne: 1, CatchUpAll: MaxCatchUp}[catchUp]
	}
	if t.every > 0 {
		return t.dueMultiples(next, now, keep)
	}
	var p Plan
	at := next
	for n := 0; !at.IsZero() && !at.After(now); at = t.Next(at) {
		p.Fire = append(p.Fire, at)
		if len(p.Fire) > keep {
			p.skip(p.Fire[0])
			p.Fire = p.Fire[1:]
		}
		if n++; n == countLimit && now.Add(-countAgain).After(at) {
			at = now.Add(-countAgain)
		}
	}
	p.Next = at
	return p
}

func (p *Plan) skip(at time.Time) {
	if p.Skipped == 0 {
		p.FirstSkipped = at
	}
	p.Skipped++
	p.LastSkipped = at
}

func (t *Timing) dueMultiples(next, now time.Time, keep int) Plan {
	due := int(now.Sub(next)/t.every) + 1
	at := func(i int) time.Time { return next.Add(time.Duration(i) * t.every) }
	p := Plan{Skipped: max(due-keep, 0), Next: at(due)}
	if p.Skipped > 0 {
		p.FirstSkipped, p.LastSkipped = next, at(p.Skipped-1)
	}
	for i := p.Skipped; i < due; i++ {
		p.Fire = append(p.Fire, at(i))
	}
	return p
}
