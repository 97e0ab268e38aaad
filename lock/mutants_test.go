//go:build unix

package lock_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify/mutants"
)

// mistakes that one could make in this package, each with the tests that find it.
var mistakes = []mutants.Mutant{
	{
		"the trust window is ignored", "tenure.go",
		"deadline := t.start.Add(t.cfg.TTL - t.cfg.Margin)",
		"deadline := t.start.Add(time.Hour)",
		[]string{"TestTrustWindowWithoutRenewal", "TestHistoryOfPausedProcesses"},
	},
	{
		"a renewal may take longer than the deadline", "tenure.go",
		"context.WithDeadline(ctx, deadline)",
		"context.WithDeadline(ctx, deadline.Add(t.cfg.RenewEvery))",
		[]string{"TestRenewalCallEndsAtTheOldDeadline"},
	},
	{
		"a renewal counts from its answer", "tenure.go",
		"start := time.Now()\n\terr := t.store.Renew(ctx, t.key, t.token, t.cfg.TTL, t.cfg.grantKeep())",
		"err := t.store.Renew(ctx, t.key, t.token, t.cfg.TTL, t.cfg.grantKeep())\n\tstart := time.Now()",
		[]string{"TestSlowAnswerDoesNotStretchTheLease", "TestSlowAnswerByHand"},
	},
	{
		"a renewal counts that is answered too late", "tenure.go",
		"valid = t.valid()\n\tif valid && err == nil {",
		"valid = !t.released\n\tif err == nil {\n\t\tt.lost = nil",
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
		"if said[1] then return {1} end",
		"",
		[]string{"TestReleaseWhoseAnswerIsLost/client_retries/handed_on"},
	},
	{
		"renewal does not compare", "../internal/redisstore/renew.lua",
		"redis.call('GET', KEYS[1]) ~= ARGV[1]",
		"not redis.call('GET', KEYS[1])",
		[]string{"TestRenewLeavesAnothersLock"},
	},
	{
		"renewal makes the key anew", "../internal/redisstore/renew.lua",
		"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end",
		"if (redis.call('GET', KEYS[1]) or ARGV[1]) ~= ARGV[1] then return 0 end redis.call('SET', KEYS[1], ARGV[1])",
		[]string{"TestRenewNeverRecreates", "TestConformance/redis/10_renewal_of_a_key_that_is_gone"},
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
		[]string{"TestFenceWhenTheClockStepsBack", "TestFenceRisesAheadToo/redis"},
	},
	{
		"all have the same token", "locker.go",
		"tokenPrefix + id",
		"tokenPrefix + uuid.Nil.String()",
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
		"if t != nil {\n\t\tt.giveBack(ctx)",
		"if false {",
		[]string{"TestUnknownOutcomeIsCleanedUp"},
	},
	{
		"a reservation does not expire", "../internal/redisstore/line.lua",
		"redis.call('SET', lock, reservation, 'PX', grace)",
		"redis.call('SET', lock, reservation)",
		[]string{"TestReservationLapses"},
	},
	{
		"a release calls nobody", "../internal/redisstore/line.lua",
		"redis.pcall('PUBLISH', channel(waiter), message)",
		"1",
		[]string{"TestConformance/redis/38_waiter_leaves_the_line"},
	},
	{
		"a newcomer overtakes the line", "../internal/redisstore/take.lua",
		"if waiter == '' or redis.call('EXISTS', line, paused) == 0 then",
		"if true then",
		[]string{"TestNotTakenAhead/somebody_in_line/redis", "TestNotTakenAhead/me_in_line/redis"},
	},
	{
		"a newcomer overtakes who was set aside", "../internal/redisstore/take.lua",
		"redis.call('EXISTS', line, paused)",
		"redis.call('EXISTS', line)",
		[]string{"TestNewcomerDoesNotOvertakeWhoWasSetAside/redis"},
	},
	{
		"a paused waiter loses its place", "../internal/redisstore/line.lua",
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
		[]string{"TestSweepBringsBackWhoWasSetAside/redis"},
	},
	{
		"the sweeper passes nothing on", "../internal/redisstore/sweep.lua",
		"if left == -2 then",
		"if false then",
		[]string{"TestSweepPassesOnWhatIsFree/redis"},
	},
	{
		"a sweep that is sent again calls nobody", "../internal/redisstore/sweep.lua",
		"elseif left <= grace then",
		"elseif false then",
		[]string{"TestSweepWhoseAnswerIsLost"},
	},
	{
		"a lost place is not given back", "../internal/redisstore/places.lua",
		"redis.call('ZADD', line, ARGV[i + 3], waiter)",
		"",
		[]string{"TestMissingWaitersRejoin/redis"},
	},
	{
		"a release that failed is not tried again", "passing.go",
		"if retry && t.begin() {",
		"if false {",
		[]string{"TestReleaseThatFails"},
	},
	{
		"who polls has a turn before those in line", "wait.go",
		"l.takeTurn(ctx, resource, polls)",
		"l.takeTurn(ctx, resource, waitsInLine)",
		[]string{"TestPollersDoNotSlowDownThoseInLine/redis"},
	},
	{
		"a reservation is for anybody", "../internal/redisstore/take.lua",
		"if not since or waiter == '' or whose ~= waiter then",
		"if not since then",
		[]string{"TestNotTakenAhead/reserved_for_another/redis"},
	},
	{
		"a reservation is for a part of the name", "../internal/redisstore/take.lua",
		"'^siding%-reserved:[^:]+:(%d+):(.*)$'",
		"'^siding%-reserved:[^:]+:(%d+):.*:([^:]*)$'",
		[]string{"TestNotTakenAhead/reserved_for_one_with_my_name_in_its/redis"},
	},
	{
		"what is taken ahead does not expire", "../internal/redisstore/take.lua",
		"redis.call('SET', lock, token, 'NX', 'PX', ttl)",
		"redis.call('SET', lock, token, 'NX')",
		[]string{"TestTakenAhead/redis"},
	},
	{
		"any text is a resource", "../internal/redisstore/ahead.lua",
		" or string.find(resource, '[{}%c]')",
		"",
		[]string{"TestNotTakenAhead/braces/redis", "TestNotTakenAhead/control/redis"},
	},
	{
		"a grant is used that comes too late", "ahead.go",
		"if end == nil && !t.trusted() {",
		"if false {",
		[]string{"TestAdoptGivesBack/its_deadline_has_passed/redis"},
	},
	{
		"a grant is used by one whose time is over", "ahead.go",
		"end := endOf(ctx)",
		"var end error",
		[]string{"TestAdoptGivesBack/the_context_has_ended/redis"},
	},
	{
		"who was summoned stays in line", "../internal/redisstore/line.lua",
		"redis.call('ZREM', line, waiter)\n      return outcome",
		"return outcome",
		[]string{"TestReleaseSummons/redis"},
	},
	{
		"the lock is kept for one who is gone", "../internal/redisstore/line.lua",
		"return outcome ~= 'gone', false, begun",
		"return true, false, begun",
		[]string{"TestReleaseSummonsPastTheDead/called/redis"},
	},
	{
		"who was summoned is called again", "../internal/redisstore/line.lua",
		"if not ticket then return {1} end\n  ticket = digits(tonumber(ticket))",
		"ticket = digits(tonumber(ticket or '0'))",
		[]string{"TestSummonsWhoseAnswerIsLost/release/redis", "TestSummonsWhoseAnswerIsLost/leave/redis"},
	},
	{
		"a lost lock is taken again", "tenure.go",
		"case !t.valid():\n\t\treturn nil, fmt.Errorf(\"lock: acquire",
		"case t.leases == 0:\n\t\treturn nil, fmt.Errorf(\"lock: acquire",
		[]string{"TestConformance/redis/16_re-entry_after_a_loss"},
	},
	{
		"a holder takes its lock again unasked", "tenure.go",
		"case !reentrant:",
		"case false:",
		[]string{"TestConformance/redis/18_two_goroutines_with_one_context"},
	},
	{
		"the first of two releases frees the lock", "tenure.go",
		"last := t.leases == 0",
		"last := true",
		[]string{"TestConformance/redis/14_re-entry_counts_once", "TestHistoryWithoutFaults"},
	},
	{
		"a release does not wait for the renewal", "tenure.go",
		"<-stopped\n",
		"_ = stopped\n",
		[]string{"TestReleaseJoinsTheRenewal"},
	},
}

//nolint:paralleltest // see mutants.Run
func TestMutants(t *testing.T) { mutants.Run(t, mistakes) }
