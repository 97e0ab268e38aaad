package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestCheckClock(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		asked, answered time.Duration // from Redis's time
		want            string
	}{
		{-1 * time.Millisecond, time.Millisecond, ""},
		{-5 * time.Second, 5 * time.Second, ""},
		{-5 * time.Second, -500 * time.Millisecond, ""}, // ahead by 0.5 s at least
		{500 * time.Millisecond, 5 * time.Second, ""},
		{-2 * time.Second, -1500 * time.Millisecond, "1.5s ahead of this machine's"},
		{90 * time.Second, 91 * time.Second, "1m30s behind this machine's"},
	} {
		have := ""
		for _, f := range checkClock(at.Add(tt.asked), at, at.Add(tt.answered)) {
			have += f.Have
		}
		expect.Equal(t, fmt.Sprint(tt.asked, " to ", tt.answered), have, tt.want)
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
