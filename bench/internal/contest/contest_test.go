package contest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/contest"
)

func itself(name string) string { return name }

func TestChoose(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	have, err := contest.Choose(all, itself, "c,a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c", "a"}, have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	if _, err := contest.Choose(all, itself, "a,d"); err == nil || !strings.Contains(err.Error(), `a, b, c, have "d"`) {
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
