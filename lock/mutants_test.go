//go:build unix

package lock_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// mistakes that one could make in this package, each with the tests that find it.
var mistakes = []verify.Mutant{
	{
		"the trust window is ignored", "../internal/lease/holding.go",
		"deadline := h.start.Add(h.cfg.trusted())",
		"deadline := h.start.Add(time.Hour)",
		[]string{"TestTrustWindowWithoutRenewal", "TestHistoryOfPausedProcesses"},
	},
	{
		"it does not matter when the answer to an acquire comes", "../internal/lease/acquire.go",
		"case err == nil && !h.trusted():",
		"case false:",
		[]string{"TestUnknownOutcomeIsCleanedUp"},
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
		[]string{"TestSlowAnswerToRenew"},
	},
	{
		"a renewal counts that is answered too late", "../internal/lease/holding.go",
		"valid = h.valid()\n\tif valid && err == nil {",
		"valid = !h.released\n\tif err == nil {\n\t\th.lost = nil",
		[]string{"TestLateAnswerRevivesNothing"},
	},
	{
		"a reserved lock is anybody's", "../internal/lockredis/quick.lua",
		"if not waiter or string.match(others, '^[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n(.*)$') ~= waiter then return end",
		"if not waiter then return end",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"all have the same token", "../internal/lease/acquire.go",
		"tokenPrefix+id",
		"tokenPrefix+uuid.Nil.String()",
		[]string{"TestConformance/redis/12_token_is_compared_whole", "TestHistoryWithoutFaults"},
	},
	{
		"what nobody will release is not given back", "locker.go",
		"held.GiveBack(ctx)\n\t\treturn nil, err",
		"return nil, err",
		[]string{"TestUnknownOutcomeIsCleanedUp"},
	},
	{
		"a release that failed is not tried again", "../internal/lease/release.go",
		"if retry && h.client.Begin() {",
		"if false {",
		[]string{"TestReleaseThatFails"},
	},
	{
		"a refusal is shared by all", "contenders.go",
		"return other.terms != mine",
		"return false && other.terms != mine",
		[]string{"TestRefusalConcernsOneLimit", "TestDeadlineConcernsOneTTL"},
	},
	{
		"who polls comes before those who are queued", "wait.go",
		"if opts.Retry != nil {\n",
		"if opts.Retry != nil {\n\t\tleave, err := l.queue(ctx, me, request.Resource, queueing)\n\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\tdefer leave()\n",
		[]string{"TestPollersKeepToTheirOwnTimes"},
	},
	{
		"a lost lock is taken again", "../internal/lease/holding.go",
		"case !h.valid():\n\t\treturn nil, store.Failed(\"acquire",
		"case len(h.leases) == 0:\n\t\treturn nil, store.Failed(\"acquire",
		[]string{"TestReentryAfterALoss"},
	},
	{
		"a holder takes its lock again unasked", "../internal/lease/holding.go",
		"case !reentrant:",
		"case false:",
		[]string{"TestHolderIsAContext"},
	},
	{
		"the first of two releases frees the lock", "../internal/lease/release.go",
		"last := len(h.leases) == 0",
		"last := true",
		[]string{"TestReentryCountsOnce", "TestHistoryWithoutFaults"},
	},
	{
		"a release does not wait for the renewal", "../internal/lease/holding.go",
		"h.renewing.Wait()\n",
		"",
		[]string{"TestReleaseJoinsTheRenewal"},
	},
	{
		"a lease whose contexts have ended is renewed for ever", "../internal/lease/lease.go",
		"delete(l.works, ctx)",
		"_ = 0",
		[]string{"TestEndOfAllContextsEndsTheRenewal", "TestRenewedWhileSomebodyWorks"},
	},
	{
		"the end of one context ends the renewal of all", "../internal/lease/lease.go",
		"l.works == nil || len(l.works) > 0",
		"l.works == nil",
		[]string{"TestRenewedWhileSomebodyWorks"},
	},
	{
		"a lease without renewal is renewed", "../internal/lease/holding.go",
		"if h.unrenewed {",
		"if false {",
		[]string{"TestNoRenewEndsInTime"},
	},
	{
		"the end of a lease without renewal is a loss", "lease.go",
		"err != nil && !l.held.Over()",
		"err != nil",
		[]string{"TestReleaseOfNoRenew"},
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
		"release does not compare", "../internal/lockredis/release.lua",
		"if held then\n",
		"if held or value_of(key) then\n",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a release that is sent again is a loss", "../internal/lockredis/release.lua",
		"and digits(last_fence(lock)) == given.fence and 1 or 0",
		"and 0 or 0",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a release that is sent again does not know that it handed on", "../internal/lockredis/release.lua",
		"if released then return tonumber(released) end",
		"",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"renewal does not compare", "../internal/lockredis/renew.lua",
		"return held and not",
		"return (held or value_of(key) and key) and not",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"renewal makes the key anew", "../internal/lockredis/renew.lua",
		"return held and",
		"if not value_of(key) then call('SET', key, given.token) end return held and",
		[]string{"TestRenew", "TestConformance/redis/10_renewal_of_a_key_that_is_gone"},
	},
	{
		"the fence only counts", "../internal/lockredis/quick.lua",
		"string.format('%d', t[1] * 1000000 + t[2])",
		"'1000000000000000'",
		[]string{"TestFenceSurvivesTheLossOfAll"},
	},
	{
		"the fence is the time only", "../internal/lockredis/locks.lua",
		"if last >= tonumber(fence) then",
		"if false then",
		[]string{"TestFenceWhenTheClockStepsBack"},
	},
	{
		"an acquire that is sent again refuses its own token", "../internal/lockredis/acquire.lua",
		"if held and not revoked then",
		"if false then",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a free lock gets a fence below its last", "../internal/lockredis/quick.lua",
		"if before and before >= fence then",
		"if false then",
		[]string{"TestFenceWhenTheClockStepsBack"},
	},
	{
		"a refused fence stays", "../internal/lockredis/quick.lua",
		"    call('SET', base .. 'fence', before, 'PX', fence_ttl)\n",
		"",
		[]string{"TestFenceWhenTheClockStepsBack"},
	},
	{
		"a free lock is for newcomers", "../internal/lockredis/quick.lua",
		"call('EXISTS', lock, base .. 'queue', base .. 'lines') > 0",
		"call('EXISTS', lock) > 0",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a release hands nothing on", "../internal/lockredis/quick.lua",
		"if call('EXISTS', wait_queue, base .. 'lines') == 0 then",
		"if true then",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a release that hands on and is sent again is a loss", "../internal/lockredis/quick.lua",
		"  call('SET', base .. 'released:' .. by, '1', 'PX', 10000)\n",
		"",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a reservation leaves no trace", "../internal/lockredis/quick.lua",
		"fence .. '*'",
		"fence",
		[]string{"TestReservationExpires/redis"},
	},
	{
		"a quick release does not compare", "../internal/lockredis/quick.lua",
		"call('GET', lock) ~= token",
		"not call('GET', lock)",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a reservation does not expire", "../internal/lockredis/quick.lua",
		"':' .. waiter, 'PX', handoff)",
		"':' .. waiter)",
		[]string{"TestReservationExpires/redis"},
	},
	{
		"a release wakes nobody", "../internal/lockredis/quick.lua",
		"local listeners = try('PUBLISH', channel, waiter)",
		"local listeners = 1",
		[]string{"TestCommandsOfAWait"},
	},
	{
		"a newcomer overtakes the wait queue", "../internal/lockredis/acquire.lua",
		"if own or not others then",
		"if true then",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"a reservation is for anybody", "../internal/lockredis/locks.lua",
		"return whose == waiter",
		"return whose ~= nil",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"who was woken stays in the wait queue", "../internal/lockredis/quick.lua",
		"  call('ZREM', wait_queue, waiter)\n",
		"",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
	{
		"the lock is kept for one who is gone", "../internal/lockredis/quick.lua",
		" or listeners == 0 and not cluster then",
		" then",
		[]string{"TestDeadWaiterCostsNothing/redis"},
	},
	{
		"an expired reservation is made again", "../internal/lockredis/queue.lua",
		"if expired and not",
		"if false and not",
		[]string{"TestReservationExpires/redis"},
	},
	{
		"one more than the limit", "../internal/lockredis/permits.lua",
		"permits.used < rule.limit and",
		"permits.used <= rule.limit and",
		[]string{"TestLimitGrantsSoManyPermits/redis"},
	},
	{
		"a reservation is no start", "../internal/lockredis/permits.lua",
		"next_start(lock, rule.rates, permits.reservations)",
		"next_start(lock, rule.rates, 0)",
		[]string{"TestReservationsCountAsStarts/redis"},
	},
	{
		"a start is not counted", "../internal/lockredis/permits.lua",
		"  call('LPUSH', starts, fence)\n",
		"",
		[]string{"TestRates/redis"},
	},
	{
		"renewal of a permit does not look at its lock", "../internal/lockredis/permits.lua",
		"  if value_of(lock) ~= LIMITED then return false end\n",
		"",
		[]string{"TestPermitIsRenewedAndLost/the_lock's_key_was_deleted/redis"},
	},
	{
		"the first release of a permit lets others in", "../internal/lockredis/permits.lua",
		"if call('EXISTS', permits_of(lock)) == 0 and value_of",
		"if value_of",
		[]string{"TestLimitKeepsOthersOut/redis"},
	},
	{
		"a waiter that leaves keeps the lock", "../internal/lockredis/leave.lua",
		"  free(key, given.by)\n",
		"",
		[]string{"TestRedisDoesAsMemory/redis"},
	},
}

//nolint:paralleltest // see verify.Mutants
func TestMutants(t *testing.T) { verify.Mutants(t, mistakes) }
