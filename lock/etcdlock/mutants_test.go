package etcdlock_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// mistakes that one could make in this package, each with the tests that find it.
var mistakes = []verify.Mutant{
	{
		"the end of a session is not foreseen", "../../internal/lease/holding.go",
		"deadline := h.start.Add(h.cfg.trusted())",
		"deadline := h.start.Add(time.Hour)",
		[]string{"TestHolderIsCutOff"},
	},
	{
		"the lock is the session's, whoever was first", "store.go",
		"if holder = found.Kvs[0]; ses.is(holder) {",
		"if holder = found.Kvs[0]; true {",
		[]string{"TestConformance/47_crowd", "TestSmoke/crowd"},
	},
	{
		"a try for a busy lock writes", "store.go",
		"if holder != nil {\n\t\treturn s.busy",
		"if false {\n\t\treturn s.busy",
		[]string{"TestNoWriteWhenRefused"},
	},
	{
		"a renewal does not look at the key", "store.go",
		"case !ses.is(holder):\n\t\treturn lock.ErrLost\n\t}\n\treturn nil",
		"case holder == nil && key == \"\":\n\t\treturn lock.ErrLost\n\t}\n\treturn nil",
		[]string{"TestConformance/10_renewal_of_a_key_that_is_gone", "TestSmoke/renewal_of_a_key_that_is_gone"},
	},
	{
		"what is written is not tied to the lock", "owner.go",
		".If(owner.Held()).Then(ops...)",
		".Then(ops...)",
		[]string{"TestCommit"},
	},
	{
		"a waiter that leaves keeps its place", "wait.go",
		"err = s.end(ctx, ses)\n\t}",
		"err = ctx.Err()\n\t}",
		[]string{"TestWaiterLeaves"},
	},
	{
		"a waiter that has lost its session is not woken", "wait.go",
		"if s.expire(ctx, c, ses) {",
		"if s.expire(ctx, c, ses) && false {",
		[]string{"TestSessionEndsWhileWaiting"},
	},
	{
		"one of a process joins the wait queue at a time", "wait.go",
		"func (s *Store) JoinOrdered() {}",
		"func (s *Store) joinOrdered() {}",
		[]string{"TestWaitersOfOneProcessKeepTheirOrder"},
	},
	{
		"a lock is given by a session that was dropped", "store.go",
		"if s.waiting[c.Waiter] != ses || !ses.left.IsZero() {",
		"if false {",
		[]string{"TestLockComesAsTheSessionEnds"},
	},
	{
		"a lock is given to a waiter that has left", "store.go",
		"|| !ses.left.IsZero() {",
		"|| false {",
		[]string{"TestLockComesAsTheSessionEnds"},
	},
	{
		"a request fails for what the caller's context ended for", "ask.go",
		"if silence, ok := errors.AsType[silenceError](context.Cause(ctx)); ok {",
		"if silence := context.Cause(ctx); silence != nil {",
		[]string{"TestCommitOfUnknownOutcome", "TestConformance/21_renewal_in_the_work_of_a_lock_that_was_lost"},
	},
	{
		"a session that is gone was lost", "session.go",
		"if errors.Is(err, rpctypes.ErrLeaseNotFound) {\n\t\treturn nil\n\t}",
		"if errors.Is(err, rpctypes.ErrLeaseNotFound) {\n\t\treturn store.ErrLost\n\t}",
		[]string{"TestReleaseIsSentAgain"},
	},
	{
		"names begin other names", "store.go",
		`return "{" + key + "}/"`,
		`return key + "/"`,
		[]string{"TestNamesAreApart", "TestRecipe"},
	},
	{
		"a request is sent once", "ask.go",
		"if err == nil || !silent && !undecided(err) || ctx.Err() != nil {",
		"if true || silent {",
		[]string{"TestMemberHangs"},
	},
	{
		"a lock that is another's is released without a word", "store.go",
		"case !found: // it",
		"case false: // it",
		[]string{"TestConformance/09_release_of_another's_lock"},
	},
	{
		"sessions that have ended are remembered", "store.go",
		"if now.Sub(ses.until) > every {",
		"if false && token != \"\" {",
		[]string{"TestSweep"},
	},
}

//nolint:paralleltest // see verify.Mutants
func TestMutants(t *testing.T) { verify.Mutants(t, mistakes) }
