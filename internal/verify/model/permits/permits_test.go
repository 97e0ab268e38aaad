package permits_test

import (
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model/permits"
)

// TestProtocol explores the protocol as it is: small models always, all in make verify.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := []permits.Model{
		{Tasks: 2, Faults: 1, Changes: 2},
		{Tasks: 3, Faults: 1},
		{Tasks: 3, Changes: 2},
	}
	if verify.All() {
		models = append(models, permits.Model{Tasks: 3, Faults: 2, Changes: 2})
	}
	for _, m := range models {
		report := m.Explore()
		t.Logf("%d tasks, %d faults, %d changes: %v", m.Tasks, m.Faults, m.Changes, report)
		if report.Broken != "" {
			t.Error("want nothing broken")
		}
	}
}

// The model finds each mistake, by the property that exists for it.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mistake         permits.Mistake
		faults, changes uint8
		property        string
	}{
		{mistake: permits.LimitUnchecked, changes: 1, property: "limit"},
		{mistake: permits.ReservedUncounted, changes: 1, property: "limit"},
		{mistake: permits.HandsOffLowered, changes: 1, property: "limit"},
		{mistake: permits.LoweringCancels, changes: 1, property: "change"},
		{mistake: permits.ReservedTwice, property: "one permit"},
		{mistake: permits.RepeatTakesAnother, faults: 1, property: "one permit"},
		{mistake: permits.ReleaseOfAnothers, faults: 1, property: "belief"},
		{mistake: permits.TrustsTooLong, faults: 1, property: "belief"},
		{mistake: permits.FencePerPermit, property: "fences"},
		{mistake: permits.JumpsQueue, changes: 1, property: "order"},
		{mistake: permits.MarkGoesEarly, property: "mark"},
		{mistake: permits.NoHandOff, property: "idle"},
		{mistake: permits.NoSweeper, faults: 1, property: "hope"},
		{mistake: permits.SweepsOnce, faults: 1, property: "waste"},
	} {
		t.Run(string(tt.mistake), func(t *testing.T) {
			t.Parallel()
			m := permits.Model{Tasks: 3, Faults: tt.faults, Changes: tt.changes, Mistake: tt.mistake}
			report := m.Explore()
			t.Log(report)
			if property, _, _ := strings.Cut(report.Broken, ":"); property != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
