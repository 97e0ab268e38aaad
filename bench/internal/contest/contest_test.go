package contest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/contest"
)

type named string

func (n named) Called() string { return string(n) }

func TestChoose(t *testing.T) {
	t.Parallel()
	all := []named{"a", "b", "c"}
	have, err := contest.Choose(all, "c,a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]named{"c", "a"}, have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	if _, err := contest.Choose(all, "a,d"); err == nil || !strings.Contains(err.Error(), `a, b, c, have "d"`) {
		t.Errorf("want the unknown name and those there are, have %v", err)
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	for round, want := range []string{"a b c", "b c a", "c a b", "a b c"} {
		if have := strings.Join(contest.Turns(all, round), " "); have != want {
			t.Errorf("round %d: want %s, have %s", round, want, have)
		}
	}
}
