//go:build unix

package lock_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify/mutants"
)

// mistakes that one could make in this package, each with the tests that find it.
var mistakes = []mutants.Mutant{
	{
		"the trust window is ignored", "../internal/lease/holding.go",
		"deadline := h.start.Add(h.cfg.trusted())",
		"deadline := h.start.Add(time.Hour)",
		[]string{"TestTrustWindowWithoutRenewal", "TestHistoryOfPausedProcesses"},
	},
	{
		"a renewal may take longer than the deadline", "../internal/lease/holding.go",
		"context.WithDeadline(ctx, deadline)",
		"context.WithDeadline(ctx, deadline.Add(h.cfg.RenewEvery))",
		[]string{"TestRenewalCallEndsAtTheOldDeadline"},
	},
	{
		"a renewal counts from its answer", "../internal/lease/holding.go",
		"start := time.Now()\n\terr := h.client.store.Renew(ctx, h.key, h.token, h.cfg.TTL, h.cfg.FenceTTL())",
		"err := h.client.store.Renew(ctx, h.key, h.token, h.cfg.TTL, h.cfg.FenceTTL())\n\tstart := time.Now()",
		[]string{"TestSlowAnswerDoesNotStretchTheLease", "TestSlowAnswerToRenew"},
	},
	{
		"a renewal counts that is answered too late", "../internal/lease/holding.go",
		"valid = h.valid()\n\tif valid && err == nil {",
		"valid = !h.released\n\tif err == nil {\n\t\th.lost = nil",
		[]string{"TestLateAnswerRevivesNothing"},
	},
	{
		"release does not compare", "../internal/redisstore/release.lua",
		"local ours = value == ARGV[1]",
		"local ours = value ~= false",
		[]string{"TestReleaseOfAnothersLock", "TestReleaseWhoseAnswerIsLost"},
	},
	{
		"a release that is sent again is a loss", "../internal/redisstore/release.lua",
		"if (not value or reserved(value)) and",
		"if false and",
		[]string{"TestReleaseWhoseAnswerIsLost/client_retries/nobody_since"},
	},
	{
		"a release that is sent again does not know that it handed on", "../internal/redisstore/release.lua",
		"if record then return",
		"if false then return",
		[]string{"TestReleaseWhoseAnswerIsLost/client_retries/handed_on"},
	},
	{
		"a release that is sent again does not name who has started", "../internal/redisstore/release.lua",
		"if fence and ARGV[10] then",
		"if false then",
		[]string{"TestHandOffByWhoseAnswerIsLost/lock/redis"},
	},
	{
		"a release that is sent again is a loss, as who has started is over", "../internal/redisstore/release.lua",
		"fence, unpack(started)} end\n",
		"fence, unpack(started)} end\n  do return {0} end\n",
		[]string{"TestHandOffByWhoseAnswerIsLost/lock/redis"},
	},
	{
		"a release that is sent again names the last fence of all permits", "../internal/redisstore/release.lua",
		"table.remove(started, 1), fence, unpack(started)}",
		"table.remove(started, 1), string.match(redis.call('GET', grant), '^%d+'), unpack(started)}",
		[]string{"TestHandOffByWhoseAnswerIsLost/permit/redis"},
	},
	{
		"renewal does not compare", "../internal/redisstore/renew.lua",
		"if value ~= ARGV[1] then return 0 end",
		"if not value then return 0 end",
		[]string{"TestRenewLeavesAnothersLock"},
	},
	{
		"renewal makes the key anew", "../internal/redisstore/renew.lua",
		"if value ~= ARGV[1] then return 0 end",
		"if (value or ARGV[1]) ~= ARGV[1] then return 0 end redis.call('SET', KEYS[1], ARGV[1])",
		[]string{"TestRenewNeverRecreates", "TestConformance/redis/10_renewal_of_a_key_that_is_gone"},
	},
	{
		"anybody notes on a lock", "../internal/redisstore/note.lua",
		"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end",
		"",
		[]string{"TestNoteOfAnothersLock"},
	},
	{
		"a short wait is noted, too", "../internal/lease/waits.go",
		"noteAfter = time.Second",
		"noteAfter = time.Millisecond",
		[]string{"TestNotes"},
	},
	{
		"the fence only counts", "../internal/redisstore/take.lua",
		"local fence = now[1] .. string.format('%06d', now[2])",
		"local fence = '1'",
		[]string{"TestFenceSurvivesTheLossOfAll", "TestHistoryOfAnEmptyServer"},
	},
	{
		"the fence is the time only", "../internal/redisstore/take.lua",
		"if last >= tonumber(fence) then",
		"if false then",
		[]string{"TestFenceWhenTheClockStepsBack", "TestFenceRisesByLockingDequeueToo/redis"},
	},
	{
		"all have the same token", "../internal/lease/acquire.go",
		"tokenPrefix+id",
		"tokenPrefix+uuid.Nil.String()",
		[]string{"TestTokensAreUnique", "TestHistoryWithoutFaults"},
	},
	{
		"an acquire that is sent again refuses its own token", "../internal/redisstore/acquire.lua",
		"elseif value == ARGV[1] then",
		"elseif false then",
		[]string{"TestAcquireWhoseAnswerIsLost"},
	},
	{
		"what nobody will release is not given back", "locker.go",
		"held.GiveBack(ctx)\n\t\treturn nil, err",
		"return nil, err",
		[]string{"TestUnknownOutcomeIsCleanedUp"},
	},
	{
		"a reservation does not expire", "../internal/redisstore/queue.lua",
		"redis.call('SET', lock, reservation, 'PX', timeout)",
		"redis.call('SET', lock, reservation)",
		[]string{"TestReservationExpires"},
	},
	{
		"a release wakes nobody", "../internal/redisstore/queue.lua",
		"redis.pcall('PUBLISH', channel(waiter), message)",
		"1",
		[]string{"TestConformance/redis/38_waiter_leaves_the_wait_queue"},
	},
	{
		"a newcomer overtakes the wait queue", "../internal/redisstore/take.lua",
		"if waiter == '' or redis.call('EXISTS', queue, paused) == 0 then",
		"if true then",
		[]string{"TestLockingDequeueTakesNothing/somebody_queued/redis", "TestLockingDequeueTakesNothing/me_queued/redis"},
	},
	{
		"a newcomer overtakes the paused", "../internal/redisstore/take.lua",
		"redis.call('EXISTS', queue, paused)",
		"redis.call('EXISTS', queue)",
		[]string{"TestNewcomerDoesNotOvertakeThePaused/redis"},
	},
	{
		"a paused waiter loses its position", "../internal/redisstore/queue.lua",
		"redis.call('ZADD', paused, unpack(moved))",
		"",
		[]string{"TestPausedWaitersComeBackWithTheirGroup/redis"},
	},
	{
		"a waiter of any group brings back the paused", "../internal/redisstore/join.lua",
		"if not first or waiter ~= '' and channel(first) ~= channel(waiter) then return end",
		"if not first then return end",
		[]string{"TestPausedWaitersComeBackWithTheirGroup/redis"},
	},
	{
		"the sweeper brings nobody back", "../internal/redisstore/sweep.lua",
		"if ARGV[6] == '1' and redis.call('EXISTS', paused) == 1 then",
		"if false then",
		[]string{"TestSweepBringsBackThePaused/redis"},
	},
	{
		"the sweeper passes nothing on", "../internal/redisstore/sweep.lua",
		"if left == -2 then",
		"if false then",
		[]string{"TestSweepHandsOffWhatIsFree/redis"},
	},
	{
		"a sweep that is sent again wakes nobody", "../internal/redisstore/sweep.lua",
		"elseif left <= timeout then",
		"elseif false then",
		[]string{"TestSweepWhoseAnswerIsLost"},
	},
	{
		"a lost position is not given back", "../internal/redisstore/missing.lua",
		"redis.call('ZADD', queue, ARGV[i + 3], waiter)",
		"",
		[]string{"TestMissingWaitersRejoin/redis"},
	},
	{
		"a release that failed is not tried again", "../internal/lease/release.go",
		"if retry && h.client.Begin() {",
		"if false {",
		[]string{"TestReleaseThatFails"},
	},
	{
		"who polls comes before those who are queued", "wait.go",
		"l.queue(ctx, request.Resource, polling)",
		"l.queue(ctx, request.Resource, queueing)",
		[]string{"TestPollersDoNotSlowDownTheQueued/redis"},
	},
	{
		"a reservation is for anybody", "../internal/redisstore/take.lua",
		"if not since or waiter == '' or whose ~= waiter then",
		"if not since then",
		[]string{"TestLockingDequeueTakesNothing/reserved_for_another/redis"},
	},
	{
		"a reservation is for a part of the name", "../internal/redisstore/take.lua",
		"'^siding%-reserved:([^:]+):(%d+):(.*)$'",
		"'^siding%-reserved:([^:]+):(%d+):.*:([^:]*)$'",
		[]string{"TestLockingDequeueTakesNothing/reserved_for_one_with_my_name_in_its/redis"},
	},
	{
		"what a dequeue takes does not expire", "../internal/redisstore/take.lua",
		"redis.call('SET', lock, token, 'NX', 'PX', ttl)",
		"redis.call('SET', lock, token, 'NX')",
		[]string{"TestLockingDequeue/redis"},
	},
	{
		"any text is a resource", "../internal/redisstore/lock.lua",
		" or string.find(resource, '[{}%c]')",
		"",
		[]string{"TestLockingDequeueTakesNothing/braces/redis", "TestLockingDequeueTakesNothing/control/redis"},
	},
	{
		"a grant is used that comes too late", "../internal/lease/acquire.go",
		"if end == nil && !h.trusted() {",
		"if false {",
		[]string{"TestTakeGivesBack/its_deadline_has_passed/redis"},
	},
	{
		"a grant is used by one whose time is over", "../internal/lease/acquire.go",
		"end := EndOf(ctx)\n\tif c.Begin() {",
		"var end error\n\tif c.Begin() {",
		[]string{"TestTakeGivesBack/the_context_has_ended/redis"},
	},
	{
		"who was woken stays in the wait queue", "../internal/redisstore/queue.lua",
		"redis.call('ZREM', queue, waiter)\n    return outcome",
		"return outcome",
		[]string{"TestReleaseWakes/redis"},
	},
	{
		"the lock is kept for one who is gone", "../internal/redisstore/queue.lua",
		"return outcome ~= 'gone', started",
		"return true, started",
		[]string{"TestReleaseWakesPastTheDead/woken/redis"},
	},
	{
		"who was woken is woken again", "../internal/redisstore/queue.lua",
		"if not ticket then return {1} end\n  ticket = digits(tonumber(ticket))",
		"ticket = digits(tonumber(ticket or '0'))",
		[]string{"TestWakingWhoseAnswerIsLost/release/redis", "TestWakingWhoseAnswerIsLost/leave/redis"},
	},
	{
		"a lost lock is taken again", "../internal/lease/holding.go",
		"case !h.valid():\n\t\treturn nil, store.Failed(\"acquire",
		"case len(h.leases) == 0:\n\t\treturn nil, store.Failed(\"acquire",
		[]string{"TestConformance/redis/16_re-entry_after_a_loss"},
	},
	{
		"a holder takes its lock again unasked", "../internal/lease/holding.go",
		"case !reentrant:",
		"case false:",
		[]string{"TestConformance/redis/18_two_goroutines_with_one_context"},
	},
	{
		"the first of two releases frees the lock", "../internal/lease/release.go",
		"last := len(h.leases) == 0",
		"last := true",
		[]string{"TestConformance/redis/14_re-entry_counts_once", "TestHistoryWithoutFaults"},
	},
	{
		"a release does not wait for the renewal", "../internal/lease/holding.go",
		"h.renewing.Wait()\n",
		"",
		[]string{"TestReleaseJoinsTheRenewal"},
	},
	{
		"a lease that was dropped is renewed for ever", "lease.go",
		"runtime.AddCleanup(l, (*lease.Lease).Drop, held)",
		"runtime.KeepAlive(l)",
		[]string{"TestDroppedLeaseIsNotRenewed"},
	},
	{
		"a lease whose contexts have ended is renewed for ever", "../internal/lease/lease.go",
		"w.ended() != nil",
		"false",
		[]string{"TestEndOfAllContextsEndsTheRenewal", "TestRenewedWhileSomebodyWorks"},
	},
	{
		"the end of one context ends the renewal of all", "../internal/lease/lease.go",
		"len(l.works) > 0)",
		"false)",
		[]string{"TestRenewedWhileSomebodyWorks"},
	},
	{
		"new work is not renewed", "../internal/lease/lease.go",
		"\t\th.wakeRenewal()\n",
		"",
		[]string{"TestNewWorkIsRenewed"},
	},
	{
		"Do protects its function until its context ends", "locker.go",
		"held.Protect(ctx)",
		"held.Context(ctx)",
		[]string{"TestDoProtectsWorkThatIgnoresItsContext"},
	},
	{
		"a context does not protect its work", "lease.go",
		"return context.WithValue(l.held.Context(ctx), leaseKey{}, l)",
		"return l.held.Context(ctx)",
		[]string{"TestDroppedLeaseIsRenewedForItsContexts"},
	},
	{
		"one more than the limit", "../internal/redisstore/permits.lua",
		"if count >= rule.limit then return end",
		"if count > rule.limit then return end",
		[]string{"TestLimitGrantsSoManyPermits", "TestLimitUnderLoad"},
	},
	{
		"a reservation is no start", "../internal/redisstore/permits.lua",
		"next_start(base, rule.rates, reservations, now)",
		"next_start(base, rule.rates, 0, now)",
		[]string{"TestReservationsCountAsStarts"},
	},
	{
		"a waiter that was woken starts at a lowered rate", "../internal/redisstore/acquire_permit.lua",
		" and (counted or next_start(base, rule.rates, 0, us()) == 0)",
		"",
		[]string{"TestLoweredRate"},
	},
	{
		"a waiter that was kept its permit is counted twice", "../internal/redisstore/acquire_permit.lua",
		"counted or ",
		"",
		[]string{"TestKeptPermitIsAStartAlready"},
	},
	{
		"a woken waiter that may not start counts as one whose reservation has expired", "../internal/redisstore/acquire_permit.lua",
		"if reservations == 0 then unmark(grant) end",
		"",
		[]string{"TestLoweredRate"},
	},
	{
		"a release that is sent again does not say when the next may start", "../internal/redisstore/release.lua",
		"return {lost and 0 or 1, rule and next_sweep(base or lock, rule)}",
		"return {lost and 0 or 1}",
		[]string{"TestPermitCallsAreSentTwice", "TestWhoGivesUpHearsOfTheNextStart/a_holder_whose_lease_was_revoked"},
	},
	{
		"the release of a revoked lease does not say when the next may start", "../internal/redisstore/release.lua",
		"    next[1] = 0\n",
		"    next = next[1] == 1 and {0} or next\n    next[1] = 0\n",
		[]string{"TestWhoGivesUpHearsOfTheNextStart/a_holder_whose_lease_was_revoked"},
	},
	{
		"a waiter that leaves does not hear when the next may start", "../internal/redisstore/leave.lua",
		"if whose ~= ARGV[1] then return {1, rule and next_sweep(base or lock, rule)} end",
		"if whose ~= ARGV[1] then return {1} end",
		[]string{"TestWhoGivesUpHearsOfTheNextStart/a_waiter", "TestWhoGivesUpHearsOfTheNextStart/a_waiter_for_whom_a_place_is_reserved"},
	},
	{
		"who drops a waiter again does not hear when the next may start", "../internal/redisstore/leave.lua",
		"value ~= ARGV[2] then return {1, rule and next_sweep(base or lock, rule)} end",
		"value ~= ARGV[2] then return {1} end",
		[]string{"TestWhoGivesUpHearsOfTheNextStart/a_waiter_that_is_dropped"},
	},
	{
		"a start is not counted", "../internal/redisstore/acquire_permit.lua",
		"count_start(base, rule.rates)",
		"",
		[]string{"TestRates", "TestPermitCallsAreSentTwice"},
	},
	{
		"renewal of a permit does not compare", "../internal/redisstore/renew_permit.lua",
		"if redis.call('GET', permit) ~= ARGV[1] or",
		"if not redis.call('GET', permit) or",
		[]string{"TestPermitIsRenewedAndLost"},
	},
	{
		"a waiter is woken for two permits", "../internal/redisstore/queue.lua",
		"not (coming and coming[some[i]]) and ",
		"",
		[]string{"TestSweepHandsOffPermits"},
	},
	{
		"a release hands off what is above the limit", "../internal/redisstore/queue.lua",
		"local number, later = free_permit(base, rule)\n",
		"local number, later = true\n",
		[]string{"TestLoweredLimit"},
	},
	{
		"the first release of a permit lets others in", "../internal/redisstore/permits.lua",
		"if count == 0 and redis.call('GET', base) == MARK",
		"if redis.call('GET', base) == MARK",
		[]string{"TestLimitKeepsOthersOut"},
	},
	{
		"a holder from before the limit does not count", "../internal/redisstore/permits.lua",
		"redis.call('SET', permit_key(base, number), value, 'PX', math.max(1, left))",
		"",
		[]string{"TestHolderFromBeforeTheLimit"},
	},
}

//nolint:paralleltest // see mutants.Run
func TestMutants(t *testing.T) { mutants.Run(t, mistakes) }
