package limits_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/limits"
	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func TestCheckPattern(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"a", "a:1", "a:*", "a:b:*", "*", ":*", "a::*", "*x"[1:], strings.Repeat("a", store.MaxResource-1) + ":*"} {
		if err := limits.CheckPattern(pattern); err != nil {
			t.Errorf("%q: want it accepted, have %v", pattern, err)
		}
	}
	const want = `want a resource, a pattern that ends in ":*" such as "account:*", or "*", have `
	for pattern, want := range map[string]string{
		"":               "bad resource name: it is empty",
		"a*":             want + `"a*"`,
		"**":             want + `"**"`,
		"*:1":            want + `"*:1"`,
		"a:*:b":          want + `"a:*:b"`,
		"a:*:*":          want + `"a:*:*"`,
		"a:{1":           `bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "a:{1"`,
		"a\n":            `bad resource name: it holds a control character: "a\n"`,
		"a\xff*":         want + `"a\xff*"`,
		"siding-probe:*": `want a name that does not begin with "siding-", as such resources have no limit, have "siding-probe:*"`,
	} {
		if err := limits.CheckPattern(pattern); err == nil || err.Error() != want {
			t.Errorf("%q: want %q, have %v", pattern, want, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	if rate, err := limits.ParseRate("100/1h30m"); err != nil || rate != (store.Rate{Starts: 100, Period: 90 * time.Minute}) {
		t.Errorf("want 100 starts in 1h30m, have %v and %v", rate, err)
	}
	for text, want := range map[string]string{
		"":        `want starts/period such as 100/1s, have ""`,
		"100":     `want starts/period such as 100/1s, have "100"`,
		"1s/100":  `want starts/period such as 100/1s, have "1s/100"`,
		"1/1":     `want starts/period such as 100/1s, have "1/1"`,
		"1/1s/1s": `want starts/period such as 100/1s, have "1/1s/1s"`,
		"-1/1s":   "starts: want 1 to 10000, have -1",
		"1/0s":    "period: want 1ms to 744h0m0s, have 0s",
	} {
		if _, err := limits.ParseRate(text); err == nil || err.Error() != want {
			t.Errorf("%q: want %q, have %v", text, want, err)
		}
	}
}

// of returns a rule that is told from others by its limit.
func of(limit int, rates ...store.Rate) *store.Rule { return &store.Rule{Limit: limit, Rates: rates} }

var (
	often  = store.Rate{Starts: 100, Period: time.Second}
	seldom = store.Rate{Starts: 1, Period: time.Minute}
)

// rules and overrides are what the tests of tables share.
var (
	rules = map[string]*store.Rule{
		"*": of(2), "a:*": of(3, often), "a:b:*": of(4), "a:b:1": of(5), "a:one": of(1), "plain": of(1),
		"a": of(6), "::*": of(7), "b:*": of(8, often), "%d+:*": of(9),
	}
	overrides = map[string]limits.Override{
		"b:*":   {Pattern: "b:*", Limit: 10, By: "alice", Reason: "stock count"},
		"b:1":   {Pattern: "b:1", Limit: 0, By: "bob", Reason: "stop"},
		"b:2:*": {Pattern: "b:2:*", Limit: 11, Rates: []store.Rate{seldom}},
		"a:b:*": {Pattern: "a:b:*", Limit: 12},
		"a:one": {Pattern: "a:one", Limit: 1},
		"c:*":   {Pattern: "c:*", Limit: 13},
	}
)

func TestRule(t *testing.T) {
	t.Parallel()
	own := limits.New(rules)
	both := own.With(overrides)
	for _, test := range []struct {
		resource        string
		own, overridden *store.Rule
	}{
		{"x", of(2), of(2)},
		{"a", of(6), of(6)},
		{"a:", of(3, often), of(3, often)},
		{"a:1", of(3, often), of(3, often)},
		{"ab:1", of(2), of(2)},
		{"a:b", of(3, often), of(3, often)},
		{"a:b:1", of(5), of(12)}, // an override counts, though the rule's pattern is longer
		{"a:b:2", of(4), of(12)},
		{"a:b:c:d", of(4), of(12)},
		{"a:one", nil, nil}, // one holder is what holds without a rule
		{"plain", nil, nil},
		{"::", of(7), of(7)},
		{":::x", of(7), of(7)},
		{":x", of(2), of(2)},
		{"1:x", of(2), of(2)}, // no pattern is one of Lua
		{"b:3", of(8, often), &store.Rule{Limit: 10, Rates: []store.Rate{often}, By: "alice", Reason: "stock count"}},
		{"b:1", of(8, often), &store.Rule{Limit: 0, Rates: []store.Rate{often}, By: "bob", Reason: "stop"}},
		{"b:1:2", of(8, often), &store.Rule{Limit: 10, Rates: []store.Rate{often}, By: "alice", Reason: "stock count"}},
		{"b:2:3", of(8, often), of(11, seldom)},
		{"c:1", of(2), of(13)},
		{"siding-servers:q", nil, nil},
	} {
		for name, table := range map[string]struct {
			have, want *store.Rule
		}{"of the program": {own.Rule(test.resource), test.own}, "overridden": {both.Rule(test.resource), test.overridden}} {
			if diff := cmp.Diff(table.want, table.have); diff != "" {
				t.Errorf("%q, %s: (-want +have):\n%s", test.resource, name, diff)
			}
		}
	}
	if rule := limits.New(nil).Rule("a"); rule != nil {
		t.Errorf("want no rule of an empty table, have %v", rule)
	}
	if o, ok := both.Override("b:1:2"); !ok || o.Pattern != "b:*" {
		t.Errorf("want the override of b:*, have %v and %v", o, ok)
	}
	for _, resource := range []string{"x", "siding-c:1"} {
		if o, ok := both.With(map[string]limits.Override{"siding-c:*": {Pattern: "siding-c:*"}}).Override(resource); ok {
			t.Errorf("%s: want no override, have %v", resource, o)
		}
	}
}

func TestWithKeepsTheTable(t *testing.T) {
	t.Parallel()
	table := limits.New(rules).With(overrides)
	if same := table.With(overrides); same != table {
		t.Error("want the same table for the same overrides, have another")
	}
	if plain := table.With(nil); plain == table || plain.Rule("c:1").Limit != 2 {
		t.Errorf("want the program's rule without overrides, have %v", plain.Rule("c:1"))
	}
}

// The scripts find the same rule for a resource as a table does.
func TestLuaAgrees(t *testing.T) {
	t.Parallel()
	source := fstest.MapFS{"rule.lua": {Data: []byte(`local prefix, limits, overrides = '', ARGV[2], ARGV[3]
-- include common
-- include Permits
-- include locks
local rule = rule_of(ARGV[1])
if not rule then return '' end
local text = tostring(rule.limit)
for _, rate in ipairs(rule.rates) do text = text .. ' ' .. rate[1] .. '/' .. rate[2] end
return text
`)}}
	rdb := redistest.Shared(t).Client(t)
	script := lockredis.Script(source, "rule")
	resources := []string{
		"x", "a", "b", "c", "plain", ":", "::", ":::x", ":x", "x:", "a:", "a:1", "ab:1", "a:b", "a:b:", "a:b:1", "a:b:12", "a:b:c:d", "b:1", "b:1:2", "b:2:3",
		"c:1", "1:x", "%d+:x", "*", "a:*", "a:b:*", "A:1", "a;1", "siding:1", "siding-a:1", strings.Repeat(":", 500),
	}
	some := map[string]*store.Rule{"a:*": of(3), "a:b:1": of(5), "c": of(2, often), "::*": of(7), "%d+:*": of(9)}
	for name, table := range map[string]*limits.Table{
		"none": limits.New(nil), "all": limits.New(map[string]*store.Rule{"*": of(2)}), "some": limits.New(some),
		"a resource": limits.New(map[string]*store.Rule{"a:b:1": of(2)}),
		"overrides":  limits.New(nil).With(map[string]limits.Override{"b:*": {Pattern: "b:*", Limit: 3}, "plain": {Pattern: "plain"}}),
		"both":       limits.New(rules).With(overrides),
	} {
		own, overrides := table.Texts()
		for _, resource := range resources {
			have := expect.Value(script.Run(t.Context(), rdb, nil, resource, own, overrides).Text())(t)
			if want := table.Rule(resource).String(); have != want {
				t.Errorf("%s: %q: want %q as for Table.Rule, have %q", name, resource, want, have)
			}
		}
	}
}

func TestOverridesInRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	prefix := uuid.NewString() + ":"
	ctx := t.Context()
	at := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	o := limits.Override{Pattern: "a:*", Limit: 3, Rates: []store.Rate{often}, By: "alice", Reason: "a test", At: at}
	for range 2 {
		expect.OK(t, limits.Set(ctx, rdb, prefix, o))
	}
	have, err := limits.Load(ctx, rdb, prefix)
	if diff := cmp.Diff(map[string]limits.Override{"a:*": o}, have); err != nil || diff != "" {
		t.Fatalf("want what was set, have %v and (-want +have):\n%s", err, diff)
	}

	bad := []any{"b", "{", "c*", mustEncode(t, o), "d", mustEncode(t, limits.Override{Limit: -1})}
	expect.OK(t, rdb.HSet(ctx, limits.Key(prefix), bad...).Err())
	have, err = limits.Load(ctx, rdb, prefix)
	if want := "read the limits: b, c*, d: want what SetLimit writes"; err == nil || err.Error() != want || len(have) != 1 {
		t.Errorf("want %q and the other limit, have %v and %v", want, err, have)
	}

	early, _ := limits.New(nil).With(map[string]limits.Override{"b": {Pattern: "b", Limit: 7}, "gone": {Pattern: "gone"}}).Reload(ctx, rdb, prefix)
	for _, want := range []limits.Override{{Pattern: "b", Limit: 7}, {Pattern: "d"}, {Pattern: "gone"}, o} {
		known := want.Limit > 0
		if have, ok := early.Override(want.Pattern); ok != known || known && have.Limit != want.Limit {
			t.Errorf("%s: want %v, known %v, have %v and %v", want.Pattern, want, known, have, ok)
		}
	}
	if same, err := early.Reload(ctx, rdb, prefix); same != early || err == nil {
		t.Errorf("want the same table and an error, have %v and %v", same, err)
	}

	filler := make([]any, 0, 2*limits.MaxOverrides)
	for i := range limits.MaxOverrides - 4 {
		filler = append(filler, fmt.Sprint("r", i), mustEncode(t, o))
	}
	expect.OK(t, rdb.HSet(ctx, limits.Key(prefix), filler...).Err())
	other := o
	other.Pattern = "one more"
	if err := limits.Set(ctx, rdb, prefix, other); !errors.Is(err, limits.ErrTooMany) {
		t.Errorf("want ErrTooMany, have %v", err)
	}
	if err := limits.Set(ctx, rdb, prefix, o); err != nil {
		t.Errorf("want a limit replaced, have %v", err)
	}
	for _, want := range []bool{true, false} {
		if was, err := limits.Unset(ctx, rdb, prefix, "a:*"); was != want || err != nil {
			t.Errorf("want %v, have %v and %v", want, was, err)
		}
	}
	if err := limits.Set(ctx, rdb, prefix, other); err != nil {
		t.Errorf("want room for one more, have %v", err)
	}
	rdb.Del(ctx, limits.Key(prefix))
}

func mustEncode(t *testing.T, o limits.Override) string {
	t.Helper()
	text := expect.Value(json.Marshal(o))(t)
	return string(text)
}
