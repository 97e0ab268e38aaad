package policies_test

import (
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model/policies"
)

// Some policies of tasks.
var (
	park     = policies.Policy{}
	patient  = policies.Policy{MaxWait: 1}
	wait     = policies.Policy{OnBusy: policies.Wait}
	reject   = policies.Policy{OnBusy: policies.Reject}
	retry    = policies.Policy{OnBusy: policies.Reject, UseRetries: true}
	coalesce = policies.Policy{OnBusy: policies.Coalesce}
	short    = policies.Policy{OnBusy: policies.Coalesce, MaxWait: 1}
	few      = policies.Policy{OnBusy: policies.Coalesce, MaxWaiting: 1}
	replace  = policies.Policy{OnBusy: policies.Replace}
	urgent   = policies.Policy{Priority: 1}
	one      = policies.Policy{MaxWaiting: 1}
	oneWaits = policies.Policy{OnBusy: policies.Wait, MaxWait: 1, MaxWaiting: 1}
)

func times(n int, p policies.Policy) []policies.Policy {
	var all []policies.Policy
	for range n {
		all = append(all, p)
	}
	return all
}

// mixed are three tasks that replace each other, two of which have a priority and a MaxWait.
func mixed() []policies.Policy {
	first := policies.Policy{OnBusy: policies.Replace, Priority: 1, MaxWait: 2}
	return []policies.Policy{first, {OnBusy: policies.Replace, MaxWait: 2}, first}
}

// TestProtocol explores the policies as they are: small models always, all in make verify.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := []policies.Model{
		{Tasks: times(2, coalesce), Faults: 1},
		{Tasks: times(2, replace), Faults: 1},
		{Tasks: times(3, replace)},
		{Tasks: times(2, short), Ticks: 2},
		{Tasks: []policies.Policy{park, urgent, urgent}},
		{Tasks: []policies.Policy{reject, park}, Faults: 1},
		{Tasks: []policies.Policy{wait, park, wait}},
		{Tasks: times(2, wait), Faults: 1},
		{Tasks: times(2, oneWaits), Ticks: 2},
	}
	if verify.All() {
		models = append(models,
			policies.Model{Tasks: times(3, coalesce), Faults: 1},
			policies.Model{Tasks: times(2, replace), Faults: 2},
			policies.Model{Tasks: times(2, coalesce), Faults: 2},
			policies.Model{Tasks: times(3, short), Ticks: 1},
			policies.Model{Tasks: times(2, short), Faults: 1, Ticks: 2},
			policies.Model{Tasks: times(3, few), Faults: 1},
			policies.Model{Tasks: mixed(), Ticks: 2},
			policies.Model{Tasks: mixed()[:2], Faults: 1, Ticks: 3},
			policies.Model{Tasks: times(3, one), Faults: 1},
			policies.Model{Tasks: times(3, patient), Faults: 1, Ticks: 1},
			policies.Model{Tasks: []policies.Policy{reject, park, reject}, Faults: 2},
			policies.Model{Tasks: []policies.Policy{park, urgent, urgent}, Faults: 1},
			policies.Model{Tasks: []policies.Policy{wait, park, wait}, Faults: 1},
			policies.Model{Tasks: []policies.Policy{wait, {OnBusy: policies.Wait, MaxWait: 1, MaxWaiting: 2}, wait}, Ticks: 1},
			policies.Model{Tasks: []policies.Policy{wait, oneWaits}, Faults: 1, Ticks: 2},
			policies.Model{Tasks: times(3, oneWaits), Ticks: 1},
			policies.Model{Tasks: times(2, wait), Faults: 2},
			policies.Model{Tasks: []policies.Policy{retry, park, retry}, Faults: 1},
			policies.Model{Tasks: times(3, policies.Policy{OnBusy: policies.Coalesce, MaxWaiting: 1, UseRetries: true})},
		)
	}
	for _, m := range models {
		t.Run(fmt.Sprintf("%v, %d faults, %d ticks", m.Tasks, m.Faults, m.Ticks), func(t *testing.T) {
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
	ages := []policies.Policy{park, urgent, urgent}
	for _, tt := range []struct {
		mistake       policies.Mistake
		tasks         []policies.Policy
		faults, ticks uint8
		property      string
	}{
		{mistake: policies.CoalescesIntoLate, tasks: times(2, short), ticks: 3, property: "lost"},
		{mistake: policies.RejectedIsRegistered, tasks: []policies.Policy{park, few, few}, property: "lost"},
		{mistake: policies.RepeatIsTooMany, tasks: times(2, few), faults: 1, property: "lost"},
		{mistake: policies.StateIgnoresTicket, tasks: times(2, coalesce), faults: 1, property: "lost"},
		{mistake: policies.StateUnchecked, tasks: times(2, coalesce), faults: 1, property: "lost"},
		{mistake: policies.RejectsUnnamed, tasks: times(1, reject), faults: 1, property: "own lock"},
		{mistake: policies.HeadStartKept, tasks: mixed()[:2], ticks: 2, property: "early"},
		{mistake: policies.PositionUnregistered, tasks: times(3, replace), property: "last"},
		{mistake: policies.RegisteredTooEarly, tasks: times(2, replace), faults: 1, property: "replaced"},
		{mistake: policies.PositionFirst, tasks: times(2, replace), faults: 1, property: "last"},
		{mistake: policies.DeletesWoken, tasks: times(2, replace), property: "replaced"},
		{mistake: policies.EarlierReplaces, tasks: times(2, replace), property: "replaced"},
		{mistake: policies.TicketForgotten, tasks: times(3, replace), property: "order"},
		{mistake: policies.TakesOverLate, tasks: mixed()[:2], ticks: 3, property: "dead"},
		{mistake: policies.LateAtWork, tasks: times(2, oneWaits), ticks: 3, property: "late"},
		{mistake: policies.LateRuns, tasks: times(2, patient), ticks: 3, property: "late"},
		{mistake: policies.EndsAtWork, tasks: times(2, patient), ticks: 3, property: "at work"},
		{mistake: policies.StrictPriority, tasks: ages, property: "ageing"},
		{mistake: policies.LevelIgnored, tasks: ages, property: "priority"},
		{mistake: policies.ManyWait, tasks: times(2, one), property: "many"},
		{mistake: policies.WorkerFirst, tasks: []policies.Policy{park, wait}, property: "order"},
		{mistake: policies.StaysQueued, tasks: times(2, wait), property: "idle"},
		{mistake: policies.WorkerStaysQueued, tasks: times(2, wait), property: "idle"},
		{mistake: policies.WorkerKeepsLock, tasks: times(2, wait), property: "idle"},
		{mistake: policies.GoneKeepsLock, tasks: times(2, park), faults: 1, property: "hope"},
	} {
		t.Run(string(tt.mistake), func(t *testing.T) {
			t.Parallel()
			m := policies.Model{Tasks: tt.tasks, Faults: tt.faults, Ticks: tt.ticks, Mistake: tt.mistake}
			report := m.Explore()
			t.Log(report)
			if report.Property() != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
