package lockpage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567"} {
		expect.Equal(t, fmt.Sprint(n), thousands(n), want)
	}
}

// A task has a link to asynq's dashboard only if no browser reads the link as another one.
func TestLinksToAsynq(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"a-1": "/dashboard/queues/default/tasks/a-1", "a:b ü": "/dashboard/queues/default/tasks/a:b%20%C3%BC", "../x": "", "..": "", "a?b": "", "a#b": "", " a": "", "": ""} {
		expect.Equal(t, fmt.Sprintf("%q", id), asynqURL("/dashboard", inspect.Task{Queue: "default", ID: id}), want)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]span{
		"":                     {},
		"Wait.":                {{"Wait.", false}},
		"Wait; `a b` shows it": {{"Wait; ", false}, {"a b", true}, {" shows it", false}},
		"`a`, or `b`":          {{"a", true}, {", or ", false}, {"b", true}},
		"see `show 'x`y'`":     {{"see `show 'x`y'`", false}},
	} {
		if have := spans(text); !slices.Equal(have, want) {
			t.Errorf("%q: want %v, have %v", text, want, have)
		}
	}
}
