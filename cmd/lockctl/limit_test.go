package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// What people see of limits is as in testdata.
func TestLimitTable(t *testing.T) {
	t.Parallel()
	a, _, _ := fakeApp(&fake{})
	all := []inspect.Limit{
		{Pattern: "account:*", Holders: 3, By: "alice@ops-1", Reason: "stock count", At: now.Add(-3 * time.Hour)},
		{Pattern: "account:42", By: "bob", Reason: "the bank\x1b is down", At: now.Add(-4 * time.Second)},
		{Pattern: "api:*", Holders: 1000, By: "alice@ops-1", Reason: "a new contract", At: now.Add(-72 * time.Hour), Rates: []inspect.Rate{
			{Starts: 100, Period: inspect.Duration(time.Second)}, {Starts: 5000, Period: inspect.Duration(time.Hour)}, {Starts: 7, Period: inspect.Duration(90 * time.Second)},
		}},
	}
	golden(t, "limit-list.txt", a.limitTable(all).text())
	golden(t, "limit-none.txt", a.limitTable(nil).text())
}

// An operator pauses a resource, reads who did it, and resumes it. Servers keep to that.
func TestLimit(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	have := b.run(t, "", "limit", "set", "order:1", "0", "--reason", "the bank is down", "--by", "alice")
	wantResult(t, result{"order:1: paused by alice. Holders at work are not disturbed.\n`lockctl limit unset order:1` resumes it.\n", have.err, cli.StatusOK}, have)
	have = b.run(t, "", "limit", "set", "order:*", "2", "--reason", "stock count", "--by", "bob", "--rate", "100/1s", "--rate", "5000/1h")
	wantResult(t, result{"order:*: at most 2 holders, 100/1s 5000/1h, set by bob. All servers keep to it within a second.\n", have.err, cli.StatusOK}, have)

	all, _ := answer[[]inspect.Limit](t, b, "limit", "list")
	if len(all) != 2 || all[0].Pattern != "order:*" || all[0].Holders != 2 || len(all[0].Rates) != 2 || time.Duration(all[0].Rates[1].Period) != time.Hour || all[1].Holders != 0 ||
		all[1].By != "alice" || all[1].Reason != "the bank is down" || time.Since(all[1].At) > time.Minute {
		t.Errorf("want two limits, have %+v", all)
	}
	b.says(t, "", "limit list", cli.StatusOK, "\norder:*        2  100/1s 5000/1h  bob  …\norder:1   paused  -               alice  ")

	b.serve(t)                                                // knows the limits from the first task on
	for _, id := range []string{"first", "second", "third"} { // of a resource of the class
		b.enqueue(t, id, "order:2")
	}
	b.enqueue(t, "paused", "order:1")
	expect.Eventually(t, "two holders of order:2, and a waiter of each", func() bool {
		two, _ := answer[shown](t, b, "show", "order:2")
		one, _ := answer[shown](t, b, "show", "order:1")
		return two.Lock.Waiting == 1 && one.Lock.Waiting == 1
	})
	expect.Eventually(t, "a pause that has lasted", func() bool {
		one, _ := answer[shown](t, b, "show", "order:1")
		return time.Duration(one.Lock.OldestWait) > 2*time.Second
	})
	if have := b.run(t, "", "doctor"); !strings.Contains(have.out, "order:1: alice has paused order:1: the bank is down") || strings.Contains(have.out, "nobody holds the lock") {
		t.Errorf("doctor: want the pause, and no fault, have %+v", have)
	}
	b.says(t, "", "limit unset order:1", cli.StatusOK, "order:1: no limit is set any more. The settings of the workers hold again within a second.\n")
	expect.Eventually(t, "the task goes on", func() bool {
		one, _ := answer[shown](t, b, "show", "order:1")
		return one.Lock.Waiting == 0 && one.Lock.State != inspect.Free
	})
	b.says(t, "", "limit unset order:1", cli.StatusFault, "lockctl: order:1: no limit of this name is set: lockctl limit list names all\n")
	b.says(t, "", "limit unset order:* --json", cli.StatusOK, `{"pattern":"order:*"}`)
	b.says(t, "", "limit list --json", cli.StatusOK, "[]\n")
}

// The prefix of the locks counts. An entry that cannot be read is named, hides no other, and can be unset, even if it is its pattern.
func TestLimitsOfAPrefix(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.run(t, "", "limit", "set", "*", "3", "--reason", "drill", "--lock-prefix", "mine:")
	expect.OK(t, b.rdb.HSet(t.Context(), "siding:limits:mine:", "x:*", "{", "{y*", "{}").Err())
	b.says(t, "", "limit list --json --lock-prefix mine:", cli.StatusFault, `[{"pattern":"*","holders":3,…x:*, {y*: want what SetLimit writes`)
	for _, bad := range []string{"x:*", "{y*"} {
		b.says(t, "", "limit unset --lock-prefix mine: "+bad, cli.StatusOK, bad+": no limit is set any more")
	}
	b.says(t, "", "limit list --json --lock-prefix mine:", cli.StatusOK, `[{"pattern":"*","holders":3,`)
	b.says(t, "", "limit list --json", cli.StatusOK, "[]\n") // none of the default prefix
}

// Of several holders the one with the fence loses the lock.
func TestReleaseOneOfSeveralHolders(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.run(t, "", "limit", "set", "order:*", "2", "--reason", "stock count", "--by", "alice")
	b.serve(t) // knows the limit from the first task on
	for _, id := range []string{"first", "second", "third"} {
		b.enqueue(t, id, "order:1")
	}
	var one shown
	expect.Eventually(t, "two holders and a waiter", func() bool {
		one, _ = answer[shown](t, b, "show", "order:1")
		return len(one.Lock.Permits) == 2 && one.Lock.Waiting == 1
	})
	if text := b.run(t, "", "show", "order:1"); !strings.Contains(text.out, "\nholder      2 holders\n") || strings.Count(text.out, " (pid ") != 2 ||
		!strings.Contains(text.out, "\nlimit       at most 2 holders, by alice for order:*, ") {
		t.Errorf("show: want both holders and the limit, have %+v", text)
	}
	b.says(t, "", "list", cli.StatusOK, "order:1   held   2 holders  -")
	b.says(t, "", "why "+one.Waiters[0].Task.ID, cli.StatusOK, "No: 2 of 2 permits of order:1 are held or reserved, by ")

	mine, other, next := one.Lock.Permits[1], one.Lock.Permits[0], one.Waiters[0].Task.ID
	list := fmt.Sprintf("\n  --fence %d  %s\n  --fence %d  %s\n", other.Fence, other.Holder, mine.Fence, mine.Holder)
	b.says(t, "", "release order:1 --reason drill --yes", cli.StatusFault, "lockctl: nothing has changed: order:1 has 2 holders: say by --fence which one is meant:"+list)
	b.says(t, "", "release order:1 --reason drill --yes --fence 7", cli.StatusFault, "lockctl: nothing has changed: order:1: no holder has the fence 7, but these:"+list)
	have := b.run(t, "yes\n", "release", "order:1", "--reason", "drill", "--by", "bob", "--fence", fmt.Sprint(mine.Fence))
	expect.That(t, have.status == cli.StatusOK && strings.HasPrefix(have.out, "order:1: taken from "+mine.Holder+" by bob.\n") && strings.Contains(have.err, "\nholder      "+strings.Split(mine.Holder, " on ")[0]), "want the lock taken from the one that was shown, have %+v", have)
	if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("context of the holder: want it ended by the loss, have %v", err)
	}
	expect.Eventually(t, "the waiter in its place", func() bool {
		one, _ = answer[shown](t, b, "show", "order:1")
		return slices.ContainsFunc(one.Lock.Permits, func(p inspect.Permit) bool {
			return p.Fence > mine.Fence && strings.HasPrefix(p.Holder, "test:job "+next+" on ")
		})
	})
	if !slices.ContainsFunc(one.Lock.Permits, func(p inspect.Permit) bool { return p.Fence == other.Fence && p.State == inspect.Held }) || one.Lock.Revoked == nil || one.Lock.Revoked.By != "bob" {
		t.Errorf("want the other holder and a record, have %+v", one.Lock)
	}
}
