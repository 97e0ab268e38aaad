package compare_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/compare"
)

const ms = time.Millisecond

// jobs makes a job of each letter, which names its resource, with 10 ms of work. An upper-case
// letter is the same resource without work. The ids are the positions.
func jobs(letters string) []compare.Job {
	all := make([]compare.Job, 0, len(letters))
	for i, letter := range letters {
		j := compare.Job{ID: string(rune('0' + i)), Resource: string(letter), Work: 10 * ms}
		if letter < 'a' {
			j.Resource, j.Work = string(letter-'A'+'a'), 0
		}
		all = append(all, j)
	}
	return all
}

func TestIdeal(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		jobs    string
		workers int
		least   time.Duration
		starts  []time.Duration
		firsts  []string
	}{
		{"nothing", "", 3, 0, nil, nil},
		{"one", "a", 3, 10 * ms, []time.Duration{0}, []string{"0"}},
		{"one resource", "aaa", 3, 30 * ms, []time.Duration{0, 10 * ms, 20 * ms}, []string{"0"}},
		{"one worker", "abc", 1, 30 * ms, []time.Duration{0, 10 * ms, 20 * ms}, []string{"0", "1", "2"}},
		{"few workers", "abcdef", 4, 15 * ms, []time.Duration{0, 0, 0, 0, 10 * ms, 10 * ms}, []string{"0", "1", "2", "3", "4", "5"}},
		{"a busy resource holds up nobody", "aaab", 2, 30 * ms, []time.Duration{0, 10 * ms, 20 * ms, 0}, []string{"0", "3"}},
		{"no work", "aAab", 1, 30 * ms, []time.Duration{0, 10 * ms, 10 * ms, 20 * ms}, []string{"0", "3"}},
		{"the first comes first", "abab", 2, 20 * ms, []time.Duration{0, 0, 10 * ms, 10 * ms}, []string{"0", "1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			all := jobs(test.jobs)
			if have := compare.Least(all, test.workers); have != test.least {
				t.Errorf("least: want %v, have %v", test.least, have)
			}
			starts := compare.Starts(all, test.workers)
			var have []time.Duration
			for _, j := range all {
				at, ok := starts[j.ID]
				if !ok {
					t.Errorf("want a start of %s, have none", j.ID)
				}
				have = append(have, at)
			}
			if diff := cmp.Diff(test.starts, have); diff != "" {
				t.Errorf("starts: -want +have:\n%s", diff)
			}
			if diff := cmp.Diff(test.firsts, compare.Firsts(all)); diff != "" {
				t.Errorf("firsts: -want +have:\n%s", diff)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*ms)
	}
	for _, test := range []struct {
		all     []time.Duration
		percent int
		want    time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{3, 1}, 50, 1},
		{[]time.Duration{3, 1, 2}, 50, 2},
		{[]time.Duration{3, 1}, 99, 3},
		{hundred, 50, 50 * ms},
		{hundred, 99, 99 * ms},
		{[]time.Duration{1, compare.Never}, 99, compare.Never},
	} {
		if have := compare.Quantile(test.all, test.percent); have != test.want {
			t.Errorf("%d %% of %v: want %v, have %v", test.percent, test.all, test.want, have)
		}
	}
}
