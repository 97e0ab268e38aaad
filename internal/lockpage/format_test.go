package lockpage

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration][2]string{
		0:                        {"0.0 s", "0"},
		593 * time.Microsecond:   {"0.0 s", "593 µs"},
		2340 * time.Microsecond:  {"0.0 s", "2.3 ms"},
		9949 * time.Millisecond:  {"9.9 s", "9.9 s"},
		9950 * time.Millisecond:  {"10 s", "10 s"},
		59600 * time.Millisecond: {"1 min", "60 s"},
		80 * time.Second:         {"1 min 20 s", "80 s"},
		2 * time.Hour:            {"2 h", "7200 s"},
		50 * time.Hour:           {"2 d 2 h", "180000 s"},
	} {
		if have := [2]string{long(d), short(d)}; have != want {
			t.Errorf("%v: want %q, have %q", d, want, have)
		}
	}
	if have := long(-time.Second); have != "0 s" {
		t.Errorf("clocks that differ: want 0 s, have %s", have)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567"} {
		if have := thousands(n); have != want {
			t.Errorf("%d: want %q, have %q", n, want, have)
		}
	}
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 4: 5, 5.1: 10, 730: 1000} {
		if have := ceiling(v); math.Abs(have-want) > 1e-9 {
			t.Errorf("%v: want the axis up to %v, have %v", v, want, have)
		}
	}
}

// A gap in the samples is a gap in the line.
func TestPathHasGaps(t *testing.T) {
	t.Parallel()
	values := []float64{1, 2, math.NaN(), 3}
	y := func(v float64) float64 { return v }
	if have, want := path(values, y, false), "M42.0 1.0h.01L43.2 2.0M45.6 3.0h.01"; have != want {
		t.Errorf("want %s, have %s", want, have)
	}
	if have, want := path(values, y, true), "M42.0 120V1.0h.5L43.2 2.0V120ZM45.6 120V3.0h.5V120Z"; have != want {
		t.Errorf("want %s, have %s", want, have)
	}
}

// A task has a link to asynq's dashboard only if no browser reads the link as another one.
func TestLinksToAsynq(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"a-1": "/dashboard/queues/default/tasks/a-1", "a:b ü": "/dashboard/queues/default/tasks/a:b%20%C3%BC", "../x": "", "..": "", "a?b": "", "a#b": "", " a": "", "": ""} {
		if have := asynqURL("/dashboard", inspect.Task{Queue: "default", ID: id}); have != want {
			t.Errorf("%q: want %q, have %q", id, want, have)
		}
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
