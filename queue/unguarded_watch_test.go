package queue

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/asynqredis"
)

// serversOf reads servers as "id queue,queue", with "!" before the id of a guarded one.
func serversOf(texts ...string) []asynqredis.Server {
	var servers []asynqredis.Server
	for _, text := range texts {
		id, queues, _ := strings.Cut(text, " ")
		s := asynqredis.Server{ID: strings.TrimPrefix(id, "!"), Guarded: strings.HasPrefix(id, "!")}
		s.Queues = strings.Split(queues, ",")
		servers = append(servers, s)
	}
	return servers
}

func textsOf(servers []asynqredis.Server) []string {
	var texts []string
	for _, s := range servers {
		texts = append(texts, s.ID+" "+strings.Join(s.Queues, ","))
	}
	slices.Sort(texts)
	return texts
}

func TestUnguarded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		servers []string
		of      []string // the queues that count, nil for all
		want    []string
	}{
		"nobody":               {nil, nil, nil},
		"plain asynq alone":    {[]string{"1 a,b", "2 a"}, nil, nil},
		"guarded alone":        {[]string{"!1 a,b", "!2 a"}, nil, nil},
		"on another queue":     {[]string{"!1 a", "2 b"}, nil, nil},
		"on the same":          {[]string{"!1 a", "2 a", "3 b"}, nil, []string{"2 a"}},
		"named first":          {[]string{"2 a", "!1 a"}, nil, []string{"2 a"}},
		"on some":              {[]string{"!1 a,b", "2 c,b,a"}, nil, []string{"2 a,b"}},
		"several":              {[]string{"!1 a", "!2 b", "3 a", "4 a,b"}, nil, []string{"3 a", "4 a,b"}},
		"on a queue of others": {[]string{"!1 a", "!2 b", "3 a", "4 a,b"}, []string{"b", "c"}, []string{"4 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counts := func(queue string) bool { return tt.of == nil || slices.Contains(tt.of, queue) }
			if diff := cmp.Diff(tt.want, textsOf(unguarded(serversOf(tt.servers...), counts))); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

// A server is reported once, when two checks in a row have found it, and once more when it has
// gone.
func TestUnguardedWatch(t *testing.T) {
	t.Parallel()
	var l unguardedWatch
	for i, look := range []struct{ found, come, gone []string }{
		{},
		{found: []string{"1 a", "2 a"}},
		{found: []string{"1 a"}, come: []string{"1 a"}}, // 2 had died before the first check
		{found: []string{"1 a", "2 a"}},
		{found: []string{"1 a", "2 a"}, come: []string{"2 a"}},
		{found: []string{"2 a", "3 a"}, gone: []string{"1 a"}},
		{gone: []string{"2 a"}},
		{},
		{found: []string{"1 a"}},
		{found: []string{"1 a"}, come: []string{"1 a"}},
	} {
		come, gone := l.look(serversOf(look.found...))
		if diff := cmp.Diff([][]string{look.come, look.gone}, [][]string{textsOf(come), textsOf(gone)}); diff != "" {
			t.Errorf("look %d, come and gone (-want +have):\n%s", i, diff)
		}
	}
}
