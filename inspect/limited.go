package inspect

import (
	"fmt"
	"strings"
	"time"
)

// paused reports whether an operator has paused the resource.
func (j judge) paused() bool { return j.x.limit != nil && j.x.limit.Holders == 0 }

// pausedBy says who has paused the resource, when and why.
func (j judge) pausedBy() string { return j.setBy("has paused " + j.x.limit.Pattern) }

// setBy says what an operator did by a limit, when and why.
func (j judge) setBy(what string) string {
	l := j.x.limit
	return fmt.Sprintf("%s %s at %s: %s", l.By, what, j.clock(l.At), strings.TrimSuffix(l.Reason, "."))
}

// most is how many may hold the lock by the limit of an operator; 0 if that is not known.
func (j judge) most() int {
	switch {
	case j.x.limit == nil:
		return 0
	case j.x.lock.elsewhere: // the external store knows one holder
		return min(1, j.x.limit.Holders)
	}
	return j.x.limit.Holders
}

// taken is how many hold the lock or a permit, or have one reserved.
func taken(l *Lock) int {
	if len(l.Permits) == 0 && l.State != Free {
		return 1
	}
	return len(l.Permits)
}

// whole reports whether somebody has the lock itself, which keeps all others out, whatever its
// limit; and not a permit of it.
func whole(l *Lock) bool { return l.State == Foreign || len(l.Permits) == 0 && l.State != Free }

// roomy reports whether there may be a free permit of the lock.
func (j judge) roomy() bool {
	l := j.e.Lock
	return !whole(l) && (len(l.Permits) > 0 && j.most() == 0 || taken(l) < j.most())
}

// limited is the verdict of a task that waits for a lock with permits, or for one that an operator has
// limited or paused. It returns false if somebody has the whole lock, or there is no limit.
func (j judge) limited(l *Lock) (Verdict, bool) {
	most, n := j.most(), taken(l)
	unlimited := most <= 1 && len(l.Permits) == 0 && !l.Rated
	switch {
	case j.paused():
		return j.behindPause(l), true
	case whole(l), unlimited:
		return Verdict{}, false
	case j.x.state == StateReady:
		return j.ready(), true
	case most > 0 && n >= most, most == 0 && n > 0:
		return j.behindPermits(l), true
	case j.x.next.After(j.x.lock.Now):
		return Verdict{
			Wrong: fmt.Sprintf("No: the rates of %s let no other task start before %s. %s.", j.x.resource, j.clock(j.x.next),
				j.setBy("has set them for "+j.x.limit.Pattern)),
			Clears: fmt.Sprintf("The first waiter gets the lock %s.%s", j.at(j.x.next), j.before()),
			Do:     fmt.Sprintf("Wait; `lockctl show %s` shows the rates.", ShellArg(j.x.resource)),
		}, true
	case l.Rated && len(j.x.limit.rates()) == 0:
		return Verdict{
			Wrong:  fmt.Sprintf("No: %s. The rates in the settings of the workers may let the next task start later.", j.room(l)),
			Clears: fmt.Sprintf("The first waiter gets the lock once the rates allow it.%s", j.before()),
			Do:     fmt.Sprintf("Wait; look again: `lockctl why %s`.", ShellArg(j.x.ID)),
		}, true
	}
	return Verdict{
		Wrong:  fmt.Sprintf("No: %s.", j.room(l)),
		Clears: fmt.Sprintf("The first waiter gets a permit as soon as a server of its queue has a free slot.%s", j.before()),
		Do:     fmt.Sprintf("Look again: `lockctl why %s`.", ShellArg(j.x.ID)),
	}, true
}

// room says how many permits are held, of how many if that is known.
func (j judge) room(l *Lock) string {
	n, most := taken(l), j.most()
	if most == 0 {
		return "nobody holds " + j.x.resource
	}
	return fmt.Sprintf("%d of %s of %s %s held or reserved", n, things(most, "permit"), j.x.resource, isAre(n))
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// behindPause is the verdict of a task whose resource an operator has paused.
func (j judge) behindPause(l *Lock) Verdict {
	v := Verdict{
		Wrong:  fmt.Sprintf("Yes: %s.", j.pausedBy()),
		Clears: "Not by itself: somebody has to resume it. The task keeps its place.",
		Do:     fmt.Sprintf("Resume it: `lockctl limit unset %s`.", ShellArg(j.x.limit.Pattern)),
	}
	if n := len(l.holders()); n > 0 {
		v.Clears += fmt.Sprintf(" %s still at work.", some(l.holders())+" "+isAre(n))
	}
	return v
}

// behindPermits is the verdict of a task behind those who hold all permits, as far as is known.
func (j judge) behindPermits(l *Lock) Verdict {
	v := Verdict{
		Clears: fmt.Sprintf("When one of them ends, the first waiter gets its permit at once.%s", j.before()),
		Do:     fmt.Sprintf("Wait; `lockctl show %s` lists them all.", ShellArg(j.x.resource)),
	}
	if most := j.most(); most > 0 {
		v.Wrong = fmt.Sprintf("No: %s, %s. %s.", j.room(l), whom(l), j.setBy("has set this limit for "+j.x.limit.Pattern))
		v.Do = fmt.Sprintf("Wait; `lockctl show %s` lists them all, and `lockctl limit set --reason TEXT %s HOLDERS` changes the limit.", ShellArg(j.x.resource), ShellArg(j.x.limit.Pattern))
	} else {
		v.Wrong = fmt.Sprintf("No: %s of %s %s held or reserved, %s. The limit in the settings of the workers lets no other task start yet.",
			things(taken(l), "permit"), j.x.resource, isAre(taken(l)), whom(l))
	}
	switch {
	case j.x.next.After(j.x.lock.Now):
		v.Clears = fmt.Sprintf("When one of them ends, but not before the rates allow it %s, the first waiter gets its permit.%s", j.at(j.x.next), j.before())
	case l.Rated && len(j.x.limit.rates()) == 0:
		v.Wrong = strings.Replace(v.Wrong, "The limit in the settings of the workers lets", "The limit or the rates in the settings of the workers let", 1)
		v.Clears = fmt.Sprintf("When one of them ends and the rates allow it, the first waiter gets its permit.%s", j.before())
	}
	var gone []string
	var end time.Time
	for _, p := range l.Permits {
		if at := j.x.lock.Now.Add(time.Duration(p.Left)); p.Gone && (end.IsZero() || at.Before(end)) {
			end = at
		}
		if p.Gone {
			gone = append(gone, p.Holder)
		}
	}
	if len(gone) > 0 {
		v.Wrong = fmt.Sprintf("Yes: of the holders of %s, %s: the worker is dead or cut off from Redis, and Redis cannot tell which.", j.x.resource, some(gone))
		v.Clears = fmt.Sprintf("The first of these permits expires %s, and the first waiter gets it then.%s", j.at(end), j.before())
	}
	return v
}

// whom says who has the permits.
func whom(l *Lock) string {
	holders := len(l.holders())
	next := "the next waiter"
	reserved := taken(l) - holders
	if reserved > 1 {
		next = fmt.Sprintf("the next %d waiters", reserved)
	}
	switch {
	case holders == 0:
		return "for " + next
	case reserved > 0:
		return fmt.Sprintf("by %s, and for %s", some(l.holders()), next)
	}
	return "by " + some(l.holders())
}

// some names three of many.
func some(names []string) string {
	const most = 3
	switch n := len(names); {
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	case n > 1:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
