package model_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model"
)

// The tasks of a model, by their resources.
var (
	two   = []uint8{0, 0}
	three = []uint8{0, 0, 0}
	four  = []uint8{0, 0, 0, 0}
	pairs = []uint8{0, 0, 1, 1}
)

// TestProtocol explores the protocol as it is: small models always, all in make verify.
// SIDING_MODEL=large adds those that take minutes and gigabytes.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := []model.Model{
		{Resources: two, Faults: 1, Prefetch: 1, Symmetric: true},
		{Resources: three, Failures: 1},
		{Resources: three, Prefetch: 1},
	}
	if verify.All() {
		models = append(models,
			model.Model{Resources: two, Faults: 1},
			model.Model{Resources: pairs, Failures: 1},
			model.Model{Resources: pairs, Prefetch: 1},
			model.Model{Resources: two, Faults: 1, Prefetch: 1},
			model.Model{Resources: three, Prefetch: 2},
			model.Model{Resources: three, Failures: 1, Prefetch: 1},
			model.Model{Resources: three, Faults: 1, Prefetch: 1, Symmetric: true},
			model.Model{Resources: three, Faults: 1},
			model.Model{Resources: pairs, Faults: 1, Symmetric: true},
		)
	}
	if os.Getenv("SIDING_MODEL") == "large" {
		models = append(models,
			model.Model{Resources: four, Faults: 1, Symmetric: true},
			model.Model{Resources: two, Faults: 1, Failures: 1},
			model.Model{Resources: two, Faults: 1, Failures: 1, Prefetch: 1},
			model.Model{Resources: two, Faults: 2},
			model.Model{Resources: three, Faults: 1, Failures: 1},
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

func name(m model.Model) string {
	name := fmt.Sprintf("tasks on %v, %d faults, %d failures, %d prefetched", m.Resources, m.Faults, m.Failures, m.Prefetch)
	if m.Symmetric {
		name += ", symmetric"
	}
	return name
}

// The model finds each mistake, by the property that exists for it.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mistake          model.Mistake
		faults, failures uint8
		prefetch         uint8
		recovers         bool
		property         string
		tasks            []uint8    // nil: two on one resource
		only             model.Kind // the only fault that happens; 0: all
	}{
		{mistake: model.MarkedAndForgotten, failures: 1, property: "timers"},
		{mistake: model.ReservationForever, faults: 1, failures: 1, property: "hope"},
		{mistake: model.GoneNotSkipped, faults: 1, property: "gone waiters"},
		{mistake: model.WakeUnchecked, failures: 1, property: "back-off"},
		{mistake: model.ConfirmUnchecked, faults: 1, property: "waiters"},
		{mistake: model.WakeInTwoSteps, failures: 1, property: "one place"},
		{mistake: model.LeavesWhenReserved, failures: 1, property: "waiters"},
		{mistake: model.HolderStaysQueued, failures: 1, property: "waiters"},
		{mistake: model.ExpiryForgotten, faults: 1, property: "progress"},
		{mistake: model.ReleaseOfAnothers, faults: 1, property: "one holder"},
		{mistake: model.LedgerUnfenced, faults: 1, property: "one holder"},
		{mistake: model.AckUnchecked, faults: 1, property: "own acknowledgement"},
		{mistake: model.RecoveryWithoutLock, faults: 1, recovers: true, property: "recovery"},
		{mistake: model.RecoveryUnchecked, faults: 1, recovers: true, property: "own acknowledgement"},
		{mistake: model.LossUnseen, faults: 1, recovers: true, property: "hope"},
		{mistake: model.NoSweeper, faults: 1, property: "hope", only: model.LoseRelease},
		{mistake: model.SweeperHeedsMark, faults: 1, property: "hope"},
		{mistake: model.PausedDropped, faults: 1, property: "waiters"},
		{mistake: model.SkippedForgotten, faults: 1, property: "hope"},
		{mistake: model.LateComesLast, failures: 1, property: "places"},
		{mistake: model.RequeuedComesLast, faults: 1, property: "places"},
		{mistake: model.RequeuedStaysOut, faults: 1, property: "places", only: model.Shutdown},
		{mistake: model.FinishUnchecked, prefetch: 1, faults: 1, property: "own acknowledgement"},
		{mistake: model.FinishAfterLoss, prefetch: 1, faults: 1, property: "own lock"},
		{mistake: model.PrefetchForgotten, prefetch: 1, property: "timers"},
		{mistake: model.PrefetchComesLast, prefetch: 1, property: "places"},
		{mistake: model.PrefetchStaysOut, prefetch: 1, property: "places", tasks: three},
		{mistake: model.PrefetchUnchecked, prefetch: 1, faults: 1, recovers: true, property: "own acknowledgement"},
		{mistake: model.PrefetchKeepsLock, prefetch: 1, property: "timers"},
	}
	for _, tt := range tests {
		t.Run(string(tt.mistake), func(t *testing.T) {
			t.Parallel()
			m := model.Model{
				Resources: two, Workers: 2, Faults: tt.faults, Failures: tt.failures, Prefetch: tt.prefetch, Mistake: tt.mistake, Only: tt.only,
				Recovers:  tt.recovers,
				Symmetric: tt.property != "progress",
			}
			if tt.tasks != nil {
				m.Resources = tt.tasks
			}
			report := m.Explore()
			t.Log(report)
			if report.Property() != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
