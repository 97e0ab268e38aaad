package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A worker says once at its start what is wrong with the Redis, and works.
func TestServeChecksRedis(t *testing.T) {
	t.Parallel()
	const warning = `level=WARN msg="redis is not safe for tasks and locks" trait=`
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"in order", settings(t, "--redis", redistest.Start(t, "--appendonly", "yes").Addr), nil},
		{"keeps nothing and evicts", settings(t, "--redis", redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr), []string{
			warning + `maxmemory-policy have=allkeys-lru advice="`, warning + `persistence have=off advice="`,
		}},
		{"embedded", settings(t, "--embedded", "--embedded-port", port(t, vacant(t))), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, test.args...)
			address(t, &w.stderr)
			w.end(t, 20*time.Second)
			said := w.stderr.String()
			wantTexts(t, said, test.want...)
			expect.Equal(t, "warnings in "+said, strings.Count(said, "level=WARN"), len(test.want))
		})
	}
}
