package inspect_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
)

// Seconds have no digits after the milliseconds: 4 s and 472 ms are 4.472, not 4.4719999999999995.
func TestDurationJSON(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                         "0",
		4472 * time.Millisecond:   "4.472",
		4471600 * time.Nanosecond: "0.004",
		-1500 * time.Millisecond:  "-1.5",
		72 * time.Hour:            "259200",
	} {
		have, err := json.Marshal(inspect.Duration(d))
		must(t, err)
		if string(have) != want {
			t.Errorf("%v: want %s, have %s", d, want, have)
		}
	}
}
