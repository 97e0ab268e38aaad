package inspect

import (
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
)

// A Limit is one that an operator has set in place of that of the servers, see [queue.LimitOverride].
type Limit struct {
	// Pattern is a resource, or a text such as "account:*" for all that begin so.
	Pattern string `json:"pattern"`
	// Holders is how many may hold each of these resources at once. 0 pauses them.
	Holders int `json:"holders"`
	// Rates are in place of those of the servers. If there are none, those of the servers hold.
	Rates  []Rate    `json:"rates,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// A Rate allows so many starts in any period.
type Rate struct {
	Starts int      `json:"starts"`
	Period Duration `json:"period_seconds"`
}

// String is as in "100/1s".
func (r Rate) String() string {
	return fmt.Sprintf("%d/%s", r.Starts, shortest(time.Duration(r.Period)))
}

// shortest is a duration such as 1h, and not 1h0m0s.
func shortest(d time.Duration) string {
	switch {
	case d > 0 && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d > 0 && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// LimitOf returns an override as a Limit.
func LimitOf(o queue.LimitOverride) Limit {
	l := Limit{Pattern: o.Pattern, Holders: o.Holders, By: o.By, Reason: o.Reason, At: utc(o.At)}
	for _, r := range o.Rates {
		l.Rates = append(l.Rates, Rate{r.Starts, Duration(r.Period)})
	}
	return l
}

// limit returns what an operator has set for a resource, nil for nothing.
func (f *fleet) limit(resource string) *Limit {
	o, ok := f.limits.Override(resource)
	if !ok {
		return nil
	}
	l := &Limit{Pattern: o.Pattern, Holders: o.Limit, By: o.By, Reason: o.Reason, At: utc(o.At)}
	for _, r := range o.Rates {
		l.Rates = append(l.Rates, Rate{r.Starts, Duration(r.Period)})
	}
	return l
}

// rates returns those of l, which may be nil, as the lock has them.
func (l *Limit) rates() (rates []store.Rate) {
	if l == nil {
		return nil
	}
	for _, r := range l.Rates {
		rates = append(rates, store.Rate{Starts: r.Starts, Period: time.Duration(r.Period)})
	}
	return rates
}

// setPermits sets the permits of a lock, and sums them up unless it is looked at as that of one of them.
func (l *Lock) setPermits(looked *lockredis.Looked) {
	held, reserved := 0, 0
	for _, p := range looked.Permits {
		permit := Permit{State: Held, Holder: p.Name, Since: utc(p.Since), Left: Duration(p.Left), Fence: p.Fence}
		switch {
		case p.Reserved:
			permit.State = Reserved
			reserved++
		case p.Revoking:
			permit.State = Revoked
			fallthrough
		default:
			_, permit.Worker = parseHolder(p.Name)
			held++
		}
		l.Permits = append(l.Permits, permit)
	}
	if len(looked.Permits) < 2 || looked.Holder != "" || l.State == Foreign {
		return
	}
	l.Holder, l.Task, l.Worker = things(held, "holder"), nil, nil
	if held == 0 {
		l.Holder = things(reserved, "waiter")
	}
}

// things is a number with its noun.
func things(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// holders returns the labels of those who hold a lock.
func (l *Lock) holders() (labels []string) {
	if len(l.Permits) == 0 && l.Leased() {
		return []string{l.Holder}
	}
	for _, p := range l.Permits {
		if p.State != Reserved {
			labels = append(labels, p.Holder)
		}
	}
	return labels
}
