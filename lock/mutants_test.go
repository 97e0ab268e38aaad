package lock_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// mutants are mistakes that one could make in this package, each with the tests
// that find it. The edit replaces a text that is in the file once.
var mutants = []struct {
	name     string
	file     string
	old, new string
	found    []string
}{
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
		"release does not compare", "release.lua",
		"local ours = value == ARGV[1]",
		"local ours = value ~= false",
		[]string{"TestReleaseOfAnothersLock", "TestReleaseWhoseAnswerIsLost"},
	},
	{
		"renewal does not compare", "renew.lua",
		"redis.call('GET', KEYS[1]) ~= ARGV[1]",
		"not redis.call('GET', KEYS[1])",
		[]string{"TestRenewLeavesAnothersLock"},
	},
	{
		"renewal makes the key anew", "renew.lua",
		"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end",
		"if (redis.call('GET', KEYS[1]) or ARGV[1]) ~= ARGV[1] then return 0 end redis.call('SET', KEYS[1], ARGV[1])",
		[]string{"TestRenewNeverRecreates", "TestConformance/redis/10_renewal_of_a_key_that_is_gone"},
	},
	{
		"the fence only counts", "take.lua",
		"local fence = now[1] .. string.format('%06d', now[2])",
		"local fence = '1'",
		[]string{"TestFenceSurvivesTheLossOfAll", "TestHistoryOfAnEmptyServer"},
	},
	{
		"the fence is the time only", "take.lua",
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
		"an acquire that is sent again refuses its own token", "acquire.lua",
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
		"a reservation does not expire", "line.lua",
		"redis.call('SET', KEYS[1], reservation, 'PX', grace)",
		"redis.call('SET', KEYS[1], reservation)",
		[]string{"TestReservationLapses"},
	},
	{
		"a release calls nobody", "line.lua",
		"redis.pcall('PUBLISH', channel(waiter), waiter)",
		"1",
		[]string{"TestConformance/redis/38_waiter_leaves_the_line"},
	},
	{
		"a newcomer overtakes the line", "take.lua",
		"if waiter == '' or redis.call('EXISTS', line) == 0 then",
		"if true then",
		[]string{"TestNotTakenAhead/somebody_in_line/redis", "TestNotTakenAhead/me_in_line/redis"},
	},
	{
		"a reservation is for anybody", "take.lua",
		"if not since or waiter == '' or whose ~= waiter then",
		"if not since then",
		[]string{"TestNotTakenAhead/reserved_for_another/redis"},
	},
	{
		"a reservation is for a part of the name", "take.lua",
		"'^siding%-reserved:[^:]+:(%d+):(.*)$'",
		"'^siding%-reserved:[^:]+:(%d+):.*:([^:]*)$'",
		[]string{"TestNotTakenAhead/reserved_for_one_with_my_name_in_its/redis"},
	},
	{
		"what is taken ahead does not expire", "take.lua",
		"redis.call('SET', lock, token, 'NX', 'PX', ttl)",
		"redis.call('SET', lock, token, 'NX')",
		[]string{"TestTakenAhead/redis"},
	},
	{
		"any text is a resource", "ahead.lua",
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
		"who was summoned stays in line", "line.lua",
		"if done then redis.call('ZREM', KEYS[3], waiter) end",
		"",
		[]string{"TestReleaseSummons/redis"},
	},
	{
		"the lock is kept for one who is gone", "line.lua",
		"return outcome ~= 'gone', done",
		"return true, done",
		[]string{"TestReleaseSummonsPastTheDead/called/redis"},
	},
	{
		"who was summoned is called again", "line.lua",
		"if not ticket then return {1} end\n  return {2, value",
		"ticket = ticket or '0'\n  return {2, value",
		[]string{"TestSummonsWhoseAnswerIsLost/release/redis", "TestSummonsWhoseAnswerIsLost/leave/redis"},
	},
	{
		"a lost lock is taken again", "tenure.go",
		"if !t.valid() {\n\t\treturn nil, fmt.Errorf(\"lock: acquire",
		"if t.leases == 0 {\n\t\treturn nil, fmt.Errorf(\"lock: acquire",
		[]string{"TestConformance/redis/16_re-entry_after_a_loss"},
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

// TestMutants makes each mistake in a copy of the package, and wants it found by
// all the tests that are named for it. Without a mistake they have to succeed.
//
//nolint:paralleltest // builds would slow down the tests beside it, of which some race with a clock
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package many times")
	}
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("needs the go tool")
	}
	var all []string
	for _, m := range mutants {
		all = append(all, m.found...)
	}
	output := runTests(t, os.Args[0], all)
	for _, test := range all {
		if !strings.Contains(output, "--- PASS: "+test+" (") {
			t.Fatalf("want %s to succeed without a mistake, have:\n%s", test, output)
		}
	}
	const builders = 2
	slots := make(chan struct{}, builders) // the tests mostly wait, so that they need none
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			program := func() string {
				defer func() { <-slots }()
				return buildWith(t, gotool, m.file, m.old, m.new)
			}()
			output := runTests(t, program, m.found)
			for _, test := range m.found {
				if !strings.Contains(output, "--- FAIL: "+test+" (") {
					t.Errorf("want the mistake found by %s, have:\n%s", test, output)
				}
			}
		})
	}
}

// buildWith builds the tests of this package with one edit of a file, and with
// the race detector if that runs now, so that what it needs is built already.
func buildWith(t *testing.T, gotool, file, old, with string) (program string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), old); n != 1 {
		t.Fatalf("want this once in %s, have it %d times: %s", file, n, old)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	edited, overlay, program := filepath.Join(dir, file), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: edited}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		edited:  []byte(strings.Replace(string(source), old, with, 1)),
		overlay: replace,
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"test", "-c", "-overlay", overlay, "-o", program, "-vet=off", "-gcflags=-N -l"} // quickly
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	if out, err := exec.CommandContext(t.Context(), gotool, append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// runTests runs the named tests of a test program and returns what it said.
func runTests(t *testing.T, program string, names []string) string {
	t.Helper()
	patterns := make([]string, len(names))
	for i, name := range names {
		parts := strings.Split(name, "/")
		for j, part := range parts {
			parts[j] = "^" + regexp.QuoteMeta(part) + "$"
		}
		patterns[i] = strings.Join(parts, "/")
	}
	const longest = 2 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.run="+strings.Join(patterns, "|"))
	cmd.Env = append(os.Environ(), historySecondsEnv+"=4") // so that no mistake stays hidden by chance
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("want an end of the tests within %v: %v", longest, err)
	}
	return string(out)
}
