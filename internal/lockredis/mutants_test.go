//go:build unix

package lockredis_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// mistakes that one could make in the scripts, each with the tests that find it.
var mistakes = []verify.Mutant{
	{
		"goroutines go first", "lines.lua",
		"serve(lock, tonumber(lines[2] or math.huge), by)",
		"serve(lock, math.huge, by)",
		[]string{"TestOrderOfArrival/tg/memory"},
	},
	{
		"tasks go first", "queue.lua",
		"if not waiter or ticket >= before then break end",
		"if true then break end",
		[]string{"TestOrderOfArrival/gt/memory"},
	},
	{
		"a goroutine takes a lock that is offered to tasks", "lines.lua",
		"if at + OFFER > now then return",
		"if false then return",
		[]string{"TestFreedLockIsOfferedToOlderTasks", "TestOrderOfArrival/tg/memory"},
	},
	{
		"a lock is offered to tasks for ever", "lines.lua",
		"if at == 0 or at > now or trace ~= GONE and at <= last_fence(lock) then",
		"if true then",
		[]string{"TestLineThatNobodyServes/no_rule/memory"},
	},
	{
		"a goroutine is not told of an offer", "lines.lua",
		"tell_first(lock) end\nend",
		"end\nend",
		[]string{"TestLineThatNobodyServes/no_rule/memory", "TestRatesOfBothKinds/memory"},
	},
	{
		"a goroutine that finds a lock free forgets the tasks", "acquire.lua",
		"local may, later = Lines().may_take(lock, ticket or now)",
		"local may, later = true, 0",
		[]string{"TestHolderDies/a_goroutine_looks,_a_task_is_first/memory"},
	},
	{
		"a goroutine that asks wakes another one before older tasks", "acquire.lua",
		"math.min(ticket or 0, line)",
		"ticket or 0",
		[]string{"TestOrderOfArrival/tgtgtg/memory"},
	},
	{
		"a line does not look for older goroutines", "../taskredis/ready.lua",
		"if waits and Queue().first_waiter(lock) then",
		"if false then",
		[]string{"TestHolderDies/a_task_looks,_a_goroutine_is_first/memory"},
	},
	{
		"a new task does not look for goroutines", "../taskredis/fetch.lua",
		"call('EXISTS', lock, base .. 'queue', base .. 'lines')",
		"call('EXISTS', lock, base .. 'lines')",
		[]string{"TestHolderDies/a_new_task_looks,_a_goroutine_is_first/memory"},
	},
	{
		"each goroutine that has gone costs a hand-off timeout", "queue.lua",
		"if expired and not",
		"if false and not",
		[]string{"TestGoroutinesThatDoNotCome/redis"},
	},
	{
		"a lock is kept for one who has gone", "queue.lua",
		"(listeners > 0 or cluster)",
		"true",
		[]string{"TestGoroutineThatHasGone/memory"},
	},
	{
		"a quick release does not look for tasks", "quick.lua",
		"call('EXISTS', base .. 'lines') == 0 and try(",
		"try(",
		[]string{"TestOrderOfArrival/tg/memory"},
	},
	{
		"two calls on a lock are under way", "commit.go",
		" && !m.away[lock]",
		"",
		[]string{"TestCommitOfOneLock"},
	},
	{
		"a group that hangs holds up all", "commit.go",
		"\t\tm.hurry()\n",
		"\t\t_ = m.hurry\n",
		[]string{"TestCommitBesideWhatHangs", "TestCommitInBoundedGroups/hangs"},
	},
	{
		"a release overtakes the acquire of its token", "store.go",
		"if !isLate || err != nil && !errors.Is(err, store.ErrLost) {",
		"if isLate || !isLate {",
		[]string{"TestReleaseBehindALateAcquire"},
	},
	{
		"no server hears of a release", "commit.lua",
		"for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end",
		"",
		[]string{"TestFreedLockIsOfferedToOlderTasks"},
	},
	{
		"a trace is not told", "lines.lua",
		"trace and digits(now) .. ' ' .. trace or digits(now)",
		"digits(now)",
		[]string{"TestTraceOfTheLastHolder/memory"},
	},
	{
		"a lock whose holder died counts as freed", "lines.lua",
		"if at <= before or trace == GONE then",
		"if at <= before then",
		[]string{"TestHolderDies/a_goroutine_looks,_a_task_is_first/memory"},
	},
	{
		"a permit is free although it is reserved", "permits.lua",
		"permits.used < rule.limit and",
		"permits.used - permits.reservations < rule.limit and",
		[]string{"TestPermitsOfBothKinds"},
	},
	{
		"an attempt renews a revoked lock", "../taskredis/attempt.lua",
		"if revoked or (lock",
		"if (lock",
		[]string{"TestRevoke/task/memory"},
	},
	{
		"an attempt does not free its revoked lock", "../taskredis/settle.lua",
		"  leaves(queue, id)\n  let_go(own_keys, queue, trace)\n",
		"  leaves(queue, id)\n",
		[]string{"TestRevoke/task/memory"},
	},
	{
		"an attempt that has lost its lock is settled", "../taskredis/settle.lua",
		"lock ~= '' and (not held_keys or revoked), kind",
		"lock ~= '' and not held_keys, kind",
		[]string{"TestRevoke/task/memory"},
	},
	{
		"a revoked lock is given away at once", "revoke.lua",
		"if not rest or left < 0 then",
		"if true then",
		[]string{"TestRevoke/task/memory"},
	},
	{
		"a revocation is sent again as another one", "revoke.lua",
		"if seen then",
		"if false then",
		[]string{"TestRevoke/goroutine/memory"},
	},
	{
		"a release that is sent again is a loss", "release.lua",
		"if released then return tonumber(released) end",
		"",
		[]string{"TestReleaseToTasksIsSentAgain/memory"},
	},
	{
		"tasks are not among those who wait", "look.lua",
		"for _, name in ipairs(queues) do all[#all + 1] = {name, siding(name, 'line:' .. lock)} end",
		"",
		[]string{"TestLookAtThoseWhoWait/memory"},
	},
}

//nolint:paralleltest // see verify.Mutants
func TestMutants(t *testing.T) { verify.Mutants(t, mistakes) }
