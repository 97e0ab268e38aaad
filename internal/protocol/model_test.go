package protocol_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/protocol"
	"github.com/sidingq/siding/internal/verify"
)

// The tasks of a model, by their resources.
var (
	two   = []uint8{0, 0}
	three = []uint8{0, 0, 0}
	four  = []uint8{0, 0, 0, 0}
	pairs = []uint8{0, 0, 1, 1}
)

// TestProtocol explores the protocol as it is: small models always, the whole in
// make verify. SIDING_MODEL=large adds what takes minutes and gigabytes.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := []protocol.Model{
		{Resources: two, Faults: 1},
		{Resources: two, Faults: 1, Ahead: 1, Symmetric: true},
		{Resources: three, Failures: 1},
		{Resources: three, Ahead: 1},
	}
	if verify.All() {
		models = append(models,
			protocol.Model{Resources: pairs, Failures: 1},
			protocol.Model{Resources: pairs, Ahead: 1},
			protocol.Model{Resources: two, Faults: 1, Ahead: 1},
			protocol.Model{Resources: three, Ahead: 2},
			protocol.Model{Resources: three, Failures: 1, Ahead: 1},
			protocol.Model{Resources: three, Faults: 1, Ahead: 1, Symmetric: true},
			protocol.Model{Resources: three, Faults: 1},
			protocol.Model{Resources: pairs, Faults: 1, Symmetric: true},
		)
	}
	if os.Getenv("SIDING_MODEL") == "large" {
		models = append(models,
			protocol.Model{Resources: four, Faults: 1, Symmetric: true},
			protocol.Model{Resources: two, Faults: 1, Failures: 1},
			protocol.Model{Resources: two, Faults: 1, Failures: 1, Ahead: 1},
			protocol.Model{Resources: two, Faults: 2},
			protocol.Model{Resources: three, Faults: 1, Failures: 1},
		)
	}
	for _, m := range models {
		m.Workers, m.Recovers = 2, true
		t.Run(name(m), func(t *testing.T) {
			t.Parallel()
			report := m.Explore()
			t.Log(report)
			if report.Broken != "" {
				t.Error("want nothing broken")
			}
		})
	}
}

func name(m protocol.Model) string {
	name := fmt.Sprintf("tasks on %v, %d faults, %d failures, %d in advance", m.Resources, m.Faults, m.Failures, m.Ahead)
	if m.Symmetric {
		name += ", symmetric"
	}
	return name
}

// Each mistake has to be found, and by the property that is there for it.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mistake          protocol.Mistake
		faults, failures uint8
		ahead            uint8
		recovers         bool
		property         string
		tasks            []uint8       // two on one resource if it is nil
		only             protocol.Kind // the only fault that happens; else all do
	}{
		{mistake: protocol.NotedAndForgotten, failures: 1, property: "timers"},
		{mistake: protocol.ReservationForever, faults: 1, failures: 1, property: "hope"},
		{mistake: protocol.GhostNotSkipped, faults: 1, property: "ghosts"},
		{mistake: protocol.PromoteUnchecked, failures: 1, property: "back-off"},
		{mistake: protocol.CalledUnchecked, faults: 1, property: "lines"},
		{mistake: protocol.PromoteInTwoSteps, failures: 1, property: "one place"},
		{mistake: protocol.LeavesWhenReserved, failures: 1, property: "lines"},
		{mistake: protocol.HolderStaysInLine, failures: 1, property: "lines"},
		{mistake: protocol.LapseForgotten, faults: 1, property: "progress"},
		{mistake: protocol.ReleaseOfAnothers, faults: 1, property: "one holder"},
		{mistake: protocol.LedgerUnfenced, faults: 1, property: "one holder"},
		{mistake: protocol.AckUnchecked, faults: 1, property: "own acknowledgement"},
		{mistake: protocol.RecoveryWithoutLock, faults: 1, recovers: true, property: "recovery"},
		{mistake: protocol.RecoveryUnchecked, faults: 1, recovers: true, property: "own acknowledgement"},
		{mistake: protocol.LossUnseen, faults: 1, recovers: true, property: "hope"},
		{mistake: protocol.NoSweeper, faults: 1, property: "hope", only: protocol.LoseRelease},
		{mistake: protocol.SweeperHeedsMark, faults: 1, property: "hope"},
		{mistake: protocol.PausedDropped, faults: 1, property: "lines"},
		{mistake: protocol.AsideForgotten, faults: 1, property: "hope"},
		{mistake: protocol.LateComesLast, failures: 1, property: "places"},
		{mistake: protocol.PutBackComesLast, faults: 1, property: "places"},
		{mistake: protocol.PutBackStaysOut, faults: 1, property: "places", only: protocol.Shutdown},
		{mistake: protocol.FinishUnchecked, ahead: 1, faults: 1, property: "own acknowledgement"},
		{mistake: protocol.FinishAfterLoss, ahead: 1, faults: 1, property: "own lock"},
		{mistake: protocol.AheadForgotten, ahead: 1, property: "timers"},
		{mistake: protocol.AheadComesLast, ahead: 1, property: "places"},
		{mistake: protocol.AheadStaysOut, ahead: 1, property: "places", tasks: three},
		{mistake: protocol.AheadUnchecked, ahead: 1, faults: 1, recovers: true, property: "own acknowledgement"},
		{mistake: protocol.AheadKeepsLock, ahead: 1, property: "timers"},
	}
	for _, tt := range tests {
		t.Run(string(tt.mistake), func(t *testing.T) {
			t.Parallel()
			m := protocol.Model{
				Resources: two, Workers: 2, Faults: tt.faults, Failures: tt.failures, Ahead: tt.ahead, Mistake: tt.mistake, Only: tt.only,
				Recovers:  tt.recovers,
				Symmetric: tt.property != "progress",
			}
			if tt.tasks != nil {
				m.Resources = tt.tasks
			}
			report := m.Explore()
			t.Log(report)
			if property, _, _ := strings.Cut(report.Broken, ":"); property != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
