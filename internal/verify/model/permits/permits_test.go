package permits_test

import (
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model/permits"
)

// Two rates at once, and a rate that lets two start at the same time.
var (
	twoRates = []permits.Rate{{Starts: 1, Period: 2}, {Starts: 2, Period: 5}}
	burst    = []permits.Rate{{Starts: 2, Period: 3}}
	slow     = []permits.Rate{{Starts: 1, Period: 2}}
)

// TestProtocol explores the protocol as it is: small models always, all in make verify.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := []permits.Model{
		{Tasks: 2, Faults: 1, Changes: 2},
		{Tasks: 3, Faults: 1},
		{Tasks: 3, Changes: 1},
		{Tasks: 3, Rates: burst},
		{Tasks: 2, Rates: twoRates, Faults: 1},
		{Tasks: 2, Rates: burst, NewRates: slow, Changes: 1},
		{Tasks: 3, Rates: slow, NewRates: twoRates, Changes: 1},
	}
	if verify.All() {
		models = append(models,
			permits.Model{Tasks: 3, Faults: 2, Changes: 1},
			permits.Model{Tasks: 3, Faults: 1, Changes: 2},
			permits.Model{Tasks: 3, Rates: twoRates, Faults: 1, Changes: 1},
			permits.Model{Tasks: 3, Rates: burst, Faults: 1, Changes: 1},
			permits.Model{Tasks: 2, Rates: twoRates, Faults: 2, Changes: 1},
			permits.Model{Tasks: 3, Rates: burst, NewRates: slow, Faults: 1, Changes: 1},
			permits.Model{Tasks: 2, Rates: twoRates, NewRates: burst, Faults: 1, Changes: 2},
		)
	}
	for _, m := range models {
		t.Run(fmt.Sprintf("%d tasks, rates %v and %v, %d faults, %d changes", m.Tasks, m.Rates, m.NewRates, m.Faults, m.Changes), func(t *testing.T) {
			t.Parallel()
			report := m.Explore()
			t.Log(report)
			if report.Broken != "" {
				t.Error("want nothing broken")
			}
		})
	}
}

// The model finds each mistake, by the property that exists for it.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mistake         permits.Mistake
		rates, newRates []permits.Rate
		faults, changes uint8
		property        string
	}{
		{mistake: permits.LimitUnchecked, changes: 1, property: "limit"},
		{mistake: permits.ReservedUncounted, changes: 1, property: "limit"},
		{mistake: permits.HandsOffLowered, changes: 1, property: "limit"},
		{mistake: permits.StartsLowered, changes: 1, property: "limit"},
		{mistake: permits.OldRuleForever, changes: 1, property: "limit"},
		{mistake: permits.LoweringCancels, changes: 1, property: "change"},
		{mistake: permits.ReservedTwice, changes: 1, property: "one permit"},
		{mistake: permits.RepeatTakesAnother, faults: 1, property: "one permit"},
		{mistake: permits.ReleaseOfAnothers, faults: 1, property: "belief"},
		{mistake: permits.ReleasesTwice, faults: 1, property: "belief"},
		{mistake: permits.TrustsTooLong, faults: 1, property: "belief"},
		{mistake: permits.FencePerPermit, property: "fences"},
		{mistake: permits.JumpsQueue, changes: 1, property: "order"},
		{mistake: permits.MarkGoesEarly, property: "mark"},
		{mistake: permits.NoHandOff, property: "idle"},
		{mistake: permits.NoSweeper, faults: 1, property: "hope"},
		{mistake: permits.SweepsOnce, faults: 1, property: "waste"},
		{mistake: permits.RateUnchecked, rates: burst, property: "rate"},
		{mistake: permits.RateReservedFree, rates: slow, property: "in vain"},
		{mistake: permits.StartsSlowed, rates: burst, newRates: slow, changes: 1, property: "rate"},
		{mistake: permits.RefusedIsExpired, changes: 1, property: "order"},
		{mistake: permits.OneRate, rates: twoRates, property: "rate"},
		{mistake: permits.LogTooShort, rates: burst, property: "rate"},
		{mistake: permits.LogExpiresEarly, rates: twoRates, property: "rate"},
		{mistake: permits.LogGoesWithLast, rates: burst, property: "rate"},
		{mistake: permits.PauseDropsLog, rates: burst, changes: 1, property: "rate"},
		{mistake: permits.StartsWhenReserved, rates: twoRates, property: "in vain"},
		{mistake: permits.StartsWhenReleased, rates: twoRates, property: "rate"},
		{mistake: permits.ClockOfWorker, rates: twoRates, property: "rate"},
		{mistake: permits.NobodyLooksAgain, rates: burst, property: "idle"},
		{mistake: permits.NoSweeper, rates: burst, faults: 1, property: "late"},
		{mistake: permits.ExpiredCountsForever, rates: twoRates, faults: 1, property: "late"},
	} {
		t.Run(string(tt.mistake), func(t *testing.T) {
			t.Parallel()
			m := permits.Model{Tasks: 3, Rates: tt.rates, NewRates: tt.newRates, Faults: tt.faults, Changes: tt.changes, Mistake: tt.mistake}
			report := m.Explore()
			t.Log(report)
			if report.Property() != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
