package verify_test

import (
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

func TestLong(t *testing.T) {
	for environment, want := range map[string]bool{"": true, "0": true, "1": false} {
		t.Run(environment, func(t *testing.T) {
			t.Setenv("SIDING_VERIFY", environment)
			defer func() {
				if have := t.Skipped(); have != want {
					t.Errorf("want skipped %t, have %t", want, have)
				}
			}()
			verify.Long(t)
		})
	}
}
