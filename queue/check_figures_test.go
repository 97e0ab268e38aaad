package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestCheckClock(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	tests := []struct {
		asked, answered time.Duration // from Redis's time
		want            string
	}{
		{-1 * time.Millisecond, time.Millisecond, ""},
		{-5 * time.Second, 5 * time.Second, ""},
		{-5 * time.Second, -500 * time.Millisecond, ""}, // ahead by 0.5 s at least
		{500 * time.Millisecond, 5 * time.Second, ""},
		{-2 * time.Second, -1500 * time.Millisecond, "1.5s ahead of this machine's"},
		{90 * time.Second, 91 * time.Second, "1m30s behind this machine's"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.asked, " to ", test.answered), func(t *testing.T) {
			t.Parallel()
			var have []string
			for _, f := range checkClock(at.Add(test.asked), at, at.Add(test.answered)) {
				have = append(have, f.Have)
			}
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			expect.That(t, slices.Equal(have, want), "want %q, have %q", want, have)
		})
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"7.0.15": "", "7.0.0": "", "8.0.2": "", "10.0": "", "6.2.19": "6.2.19", "5.0.1": "5.0.1",
	} {
		have := ""
		for _, f := range (traits{"redis_version": version}).checkVersion() {
			have = f.Have
		}
		expect.That(t, have == want, "%s: want %q, have %q", version, want, have)
	}
}
