package taskredis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestDisagreements(t *testing.T) {
	t.Parallel()
	usual := func() *Terms { return &Terms{Prefix: `"lock:"`, Store: "the Redis of the tasks", TTL: "15s"} }
	with := func(change func(*Terms)) *Terms { terms := usual(); change(terms); return terms }
	server := func(host string, terms *Terms, queues ...string) *ServerInfo {
		s := &ServerInfo{Host: host, Queues: make(map[string]int), Terms: terms}
		for _, q := range queues {
			s.Queues[q] = 1
		}
		return s
	}
	prefix, ttl := with(func(t *Terms) { t.Prefix = `"b:"` }), with(func(t *Terms) { t.TTL = "30s" })
	for name, c := range map[string]struct {
		servers []*ServerInfo
		want    []string
	}{
		"none":              {nil, nil},
		"alike":             {[]*ServerInfo{server("a", usual(), "q"), server("b", usual(), "q", "r")}, nil},
		"no queue alike":    {[]*ServerInfo{server("a", usual(), "q"), server("b", prefix, "r")}, nil},
		"one does not tell": {[]*ServerInfo{server("a", usual(), "q"), server("b", nil, "q")}, nil},
		"prefix":            {[]*ServerInfo{server("a", usual(), "q", "r"), server("b", prefix, "q", "r")}, []string{`lock.prefix true [q r] "b:"=b "lock:"=a`}},
		"store":             {[]*ServerInfo{server("a", usual(), "q"), server("b", with(func(t *Terms) { t.Store = "redlock.Store" }), "q")}, []string{"store true [q] redlock.Store=b the Redis of the tasks=a"}},
		"locks come first":  {[]*ServerInfo{server("a", ttl, "q"), server("b", prefix, "q")}, []string{`lock.prefix true [q] "b:"=b "lock:"=a`, "lock.ttl false [q] 15s=b 30s=a"}},
		"three servers":     {[]*ServerInfo{server("a", usual(), "q"), server("b", ttl, "q"), server("c", usual(), "q")}, []string{"lock.ttl false [q] 15s=a,c 30s=b"}},
		"limits": {
			[]*ServerInfo{server("a", with(func(t *Terms) { t.Limits = map[string]string{"x:*": "5", "y": "2"} }), "q"), server("b", with(func(t *Terms) { t.Limits = map[string]string{"x:*": "6", "y": "2"} }), "q")},
			[]string{"limits: x:* false [q] 5=a 6=b"},
		},
		"policies": {
			[]*ServerInfo{server("a", usual(), "q"), server("b", with(func(t *Terms) { t.Policies = map[string]string{"mail": "{}"} }), "q")},
			[]string{"policies: mail false [q] none=a {}=b"},
		},
	} {
		var have []string
		for _, d := range Disagreements(c.servers) {
			text := fmt.Sprint(d.Setting, " ", d.Locks, " ", d.Queues)
			for _, v := range d.Values {
				var hosts []string
				for _, s := range v.Servers {
					hosts = append(hosts, s.Host)
				}
				text += " " + v.Value + "=" + strings.Join(hosts, ",")
			}
			have = append(have, text)
		}
		expect.Same(t, name, have, c.want)
	}
}

// What a server writes of its terms comes back. What a later release may write is no error.
func TestTermsInAnEntry(t *testing.T) {
	t.Parallel()
	s := ServerInfo{Queues: map[string]int{"q": 1}, Terms: &Terms{Prefix: `"lock:"`, TTL: "15s", Limits: map[string]string{"a": "2"}}}
	back, err := decodeServer(s.encode())
	diff := cmp.Diff(s.Terms, back.Terms)
	expect.That(t, err == nil && diff == "", "want it back, have %v (-want +have):\n%s", err, diff)
	later, err := decodeServer(appendBytes(nil, 7011, []byte("\xff{")))
	expect.That(t, err == nil && later.Terms == nil, "want no terms, have %+v, %v", later, err)
}
