package store_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/store"
)

func TestRuleAsText(t *testing.T) {
	t.Parallel()
	for text, rule := range map[string]*store.Rule{
		"":                     nil,
		"0":                    {},
		"1000":                 {Limit: 1000},
		"3 100/1000000 1/1000": {Limit: 3, Rates: []store.Rate{{Starts: 100, Period: time.Second}, {Starts: 1, Period: time.Millisecond}}},
		"1 1/2678400000000":    {Limit: 1, Rates: []store.Rate{{Starts: 1, Period: store.MaxPeriod}}},
	} {
		if have := rule.String(); have != text {
			t.Errorf("want %q, have %q", text, have)
		}
	}
}
