package redlock_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// mistakes that one could make in this package, each with the tests that find it.
var mistakes = []verify.Mutant{
	{
		"one node is enough", "verdict.go",
		"return n/2 + 1",
		"return 1",
		[]string{"TestTooManyHang", "TestRenewal"},
	},
	{
		"a renewal needs no majority", "verdict.go",
		"case t.won():\n\t\treturn nil",
		"case t.yes > 0:\n\t\treturn nil",
		[]string{"TestRenewal"},
	},
	{
		"a renewal that could not be decided is a loss", "verdict.go",
		"case len(t.no) > t.nodes-quorum(t.nodes):",
		"case true:",
		[]string{"TestRenewal"},
	},
	{
		"nothing is cleaned up", "store.go",
		"if !result.Taken {",
		"if false {",
		[]string{"TestNothingIsLeft", "TestSplitVote"},
	},
	{
		"clean-up ends with the caller", "store.go",
		"s.poll(context.WithoutCancel(ctx), ",
		"s.poll(ctx, ",
		[]string{"TestCallerGoes"},
	},
	{
		"clean-up only where the answer was yes", "store.go",
		`result, err := s.poll(ctx, func(ctx context.Context, n node) (vote, error) { return n.Acquire(ctx, request, delay) }).granted()
`,
		`yes := make(chan node, len(s.nodes))
	result, err := s.poll(ctx, func(ctx context.Context, n node) (vote, error) {
		v, err := n.Acquire(ctx, request, delay)
		if err == nil && v.yes {
			yes <- n
		}
		return v, err
	}).granted()
	s = &majority{cfg: s.cfg}
	for len(yes) > 0 {
		s.nodes = append(s.nodes, <-yes)
	}
`,
		[]string{"TestNothingIsLeft"},
	},
	{
		"a call is not waited for once its caller has gone", "store.go",
		"context.WithTimeout(context.WithoutCancel(ctx), longest)",
		"context.WithTimeout(ctx, longest)",
		[]string{"TestCallerGoes"},
	},
	{
		"nodes have all the time of the call", "store.go",
		"context.WithTimeout(context.WithoutCancel(ctx), longest)",
		"context.WithTimeout(context.WithoutCancel(ctx), time.Hour)",
		[]string{"TestTimeOfANode"},
	},
	{
		"nodes that do not keep to their time are waited for", "store.go",
		"case <-call.Done():",
		"case <-make(chan bool):",
		[]string{"TestTimeOfANode"},
	},
	{
		"a server votes as often as it is named", "verdict.go",
		"if a.err == nil && voted[a.of.run] {",
		"if false {",
		[]string{"TestServerVotesOnce", "TestSameServerBehindAnotherAddress"},
	},
	{
		"a server may be named twice", "redlock.go",
		`case names[run] != "":`,
		"case false:",
		[]string{"TestNewRefuses/two_addresses_of_one", "TestNewRefuses/one_client_twice"},
	},
	{
		"a restarted node votes at once", "acquire.lua",
		"if up < tonumber(ARGV[3]) then",
		"if false then",
		[]string{"TestRestartDelay/kept", "TestRestartDelay/not_renewed", "TestNewNodes"},
	},
	{
		"a lock is taken from another", "acquire.lua",
		"'NX', ",
		"",
		[]string{"TestPlainProtocol"},
	},
	{
		"a request that is sent again finds the lock busy", "acquire.lua",
		"if value ~= ARGV[1] then",
		"if true then",
		[]string{"TestConformance/03_reply_lost_and_sent_again", "TestSmoke/reply_lost_and_sent_again"},
	},
	{
		"release does not compare", "release.lua",
		"if redis.call('GET', KEYS[1]) == ARGV[1] then",
		"if true then",
		[]string{"TestPlainProtocol", "TestConformance/09_release_after_expiry"},
	},
	{
		"a release that is sent again is a loss", "release.lua",
		"redis.call('GET', KEYS[2]) == ARGV[1] and 1 or 0",
		"0",
		[]string{"TestConformance/03_reply_lost_and_sent_again", "TestSmoke/reply_lost_and_sent_again"},
	},
	{
		"renewal makes the key anew", "renew.lua",
		"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {run, 0} end",
		"redis.call('SET', KEYS[1], ARGV[1])",
		[]string{"TestRestartsOneByOne", "TestConformance/10_renewal_of_a_key_that_is_gone"},
	},
}

//nolint:paralleltest // see verify.Mutants
func TestMutants(t *testing.T) { verify.Mutants(t, mistakes) }
