package ready_test

import (
	"maps"
	"os"
	"testing"

	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model/ready"
)

// The tasks of a model, in the order in which they come.
var (
	two    = []ready.Spec{{}, {}}
	one    = []ready.Spec{{}}
	three  = []ready.Spec{{}, {}, {}}
	four   = []ready.Spec{{}, {}, {}, {}}
	pairs  = []ready.Spec{{}, {}, {Resource: 1}, {Resource: 1}}
	others = []ready.Spec{{}, {}, {Resource: ready.Unguarded}, {Resource: ready.Unguarded}}
	plain  = []ready.Spec{{Plain: true}, {Plain: true}}
	unlike = []ready.Spec{{Plain: true}, {Plain: true, Resource: 1}}
	mixed  = []ready.Spec{{Plain: true}, {}}
	queues = []ready.Spec{{}, {Queue: 1}}
	crowd  = []ready.Spec{{}, {Queue: 1}, {Queue: 1}}
)

// The servers of a model.
var (
	fleet  = []ready.Serving{{Queues: []uint8{0}, Slots: 1}, {Queues: []uint8{0}, Slots: 1}}
	single = []ready.Serving{{Queues: []uint8{0}, Slots: 1}}
	wide   = []ready.Serving{{Queues: []uint8{0}, Slots: 2}}
	wider  = []ready.Serving{{Queues: []uint8{0}, Slots: 3}}
	pair   = []ready.Serving{{Queues: []uint8{0}, Slots: 2}, {Queues: []uint8{0}, Slots: 1}}
	apart  = []ready.Serving{{Queues: []uint8{0}, Slots: 1}, {Queues: []uint8{1}, Slots: 1}}
	both   = []ready.Serving{{Queues: []uint8{0, 1}, Slots: 2}}
	second = []ready.Serving{{Queues: []uint8{1}, Slots: 1}}
)

// only returns faults and actions.
func only(events ...ready.Event) []ready.Event { return events }

// TestProtocol explores the protocol as it is: small models always, all in make verify. SIDING_MODEL=large adds
// those that take minutes and gigabytes.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := map[string]ready.Model{
		"two tasks, a fault":                  {Tasks: two, Servers: fleet, Faults: 1},
		"two tasks, an action":                {Tasks: two, Servers: fleet, Actions: 1},
		"three tasks, a failure":              {Tasks: three, Servers: fleet, Failures: 1},
		"three tasks, a fault":                {Tasks: three, Servers: fleet, Faults: 1},
		"two resources in turns":              {Tasks: pairs, Servers: pair, Turns: true},
		"with tasks that have no resource":    {Tasks: others, Servers: wide, Turns: true, Failures: 1},
		"tasks of plain clients, a fault":     {Tasks: plain, Servers: fleet, Faults: 1},
		"two queues, two servers, a fault":    {Tasks: queues, Servers: apart, Faults: 1},
		"two queues, two servers, an action":  {Tasks: crowd, Servers: apart, Actions: 1},
		"two queues, a server, an action":     {Tasks: crowd, Servers: both, Actions: 1},
		"two queues, one is not served":       {Tasks: crowd, Servers: second, Actions: 1},
		"two tasks, a failover":               {Tasks: two, Servers: fleet, Faults: 1, Only: only(ready.ReplicaStops)},
		"a server with two slots, two faults": {Tasks: two, Servers: wide, Faults: 2},
	}
	if verify.All() {
		maps.Copy(models, map[string]ready.Model{
			"two tasks, two faults":                         {Tasks: two, Servers: fleet, Faults: 2},
			"two tasks, two actions":                        {Tasks: two, Servers: fleet, Actions: 2},
			"two tasks, three faults of servers and calls":  {Tasks: two, Servers: fleet, Faults: 3, Only: only(ready.Crash, ready.Stop, ready.StepUnheard, ready.StepDelayed)},
			"three tasks, a fault and an action":            {Tasks: three, Servers: fleet, Faults: 1, Actions: 1},
			"three tasks, a fault and a failure":            {Tasks: three, Servers: fleet, Faults: 1, Failures: 1},
			"four tasks, a fault":                           {Tasks: four, Servers: fleet, Faults: 1},
			"four tasks, two actions":                       {Tasks: four, Servers: wide, Actions: 2},
			"two resources in turns, a fault":               {Tasks: pairs, Servers: pair, Turns: true, Faults: 1},
			"two resources, one slot, a fault, an action":   {Tasks: pairs, Servers: single, Faults: 1, Actions: 1},
			"tasks of plain clients, two faults":            {Tasks: plain, Servers: fleet, Faults: 2},
			"tasks of plain clients, a fault, an action":    {Tasks: plain, Servers: fleet, Faults: 1, Actions: 1},
			"a plain client's task and another, two faults": {Tasks: mixed, Servers: fleet, Faults: 2},
			"plain clients, two resources, a fault":         {Tasks: unlike, Servers: fleet, Faults: 1, Actions: 1},
			"two queues, two servers, two faults":           {Tasks: queues, Servers: apart, Faults: 2},
			"two queues, two servers, two actions":          {Tasks: crowd, Servers: apart, Actions: 2},
		})
	}
	for _, tt := range mistakes() {
		if name := "without: " + string(tt.m.Mistake); verify.All() { // what is found is the mistake's
			tt.m.Mistake = ready.NoMistake
			models[name] = tt.m
		}
	}
	if os.Getenv("SIDING_MODEL") == "large" {
		maps.Copy(models, map[string]ready.Model{
			"two tasks, a fault, a failure and an action": {Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Actions: 1},
			"two queues, a server, a fault, an action":    {Tasks: crowd, Servers: both, Faults: 1, Actions: 1},
			"three tasks, a failover and another fault":   {Tasks: three, Servers: fleet, Faults: 2, Only: only(ready.ReplicaStops, ready.Crash, ready.StepUnheard)},
			"two queues, two servers, a fault, a failure": {Tasks: crowd, Servers: apart, Faults: 1, Failures: 1},
			"two queues, two servers, a fault, an action": {Tasks: crowd, Servers: apart, Faults: 1, Actions: 1},
			"two queues, a failover and another fault":    {Tasks: crowd, Servers: apart, Faults: 2, Only: only(ready.ReplicaStops, ready.Crash, ready.Stop)},
		})
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := m.Explore()
			t.Log(report)
			if report.Broken != "" {
				t.Error("want nothing broken")
			}
		})
	}
}

// A found mistake is one that the model finds, by the property that exists for it.
type found struct {
	property string
	m        ready.Model
}

func mistakes() []found {
	return []found{
		{"score", ready.Model{Mistake: ready.OwnLineOnly, Tasks: queues, Servers: apart}},
		{"score", ready.Model{Mistake: ready.LockerUnmarked, Tasks: two, Servers: fleet, Actions: 1}},
		{"listed", ready.Model{Mistake: ready.LineUnlisted, Tasks: queues, Servers: apart}},
		{"ready", ready.Model{Mistake: ready.ParkNotReady, Tasks: two, Servers: fleet}},
		{"hope", ready.Model{Mistake: ready.NoUpkeep, Tasks: two, Servers: fleet, Faults: 1, Only: only(ready.Evict)}},

		{"score", ready.Model{Mistake: ready.ScoredAhead, Tasks: four, Servers: wide}},
		{"score", ready.Model{Mistake: ready.ForeignAsOurs, Tasks: two, Servers: fleet, Faults: 1, Only: only(ready.ForeignTakes)}},
		{"ready", ready.Model{Mistake: ready.LookForgets, Tasks: two, Servers: fleet, Faults: 1}},
		{"score", ready.Model{Mistake: ready.HeadNotLowered, Tasks: mixed, Servers: fleet, Faults: 1, Failures: 1, Only: only(ready.ForeignTakes)}},

		{"lost", ready.Model{Mistake: ready.PopsFirst, Tasks: two, Servers: fleet, Faults: 1, Only: only(ready.StepFails)}},
		{"lost", ready.Model{Mistake: ready.LeavesFirst, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(ready.StepFails)}},
		{"lost", ready.Model{Mistake: ready.HashFirst, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(ready.StepFails)}},
		{"own outcome", ready.Model{Mistake: ready.LeftoverComesBack, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(ready.StepFails)}},

		{"one holder", ready.Model{Mistake: ready.RecoveryByLease, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", ready.Model{Mistake: ready.LeaseLater, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", ready.Model{Mistake: ready.LeaseRenewedAlone, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", ready.Model{Mistake: ready.RecoverLast, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", ready.Model{Mistake: ready.RecoveryBounded, Tasks: pairs, Servers: pair, Faults: 1, Only: only(ready.Crash)}},
		{"order", ready.Model{Mistake: ready.BackToPending, Tasks: two, Servers: fleet, Faults: 1}},
		{"crashes", ready.Model{Mistake: ready.CrashUsesRetry, Tasks: two, Servers: fleet, Faults: 1}},

		{"one place", ready.Model{Mistake: ready.HeadUnverified, Tasks: two, Servers: fleet, Actions: 1}},
		{"heads", ready.Model{Mistake: ready.TicketUnverified, Tasks: two, Servers: fleet, Actions: 2}},
		{"tickets", ready.Model{Mistake: ready.TicketForgotten, Tasks: two, Servers: fleet, Faults: 1}},
		{"score", ready.Model{Mistake: ready.PassedForLater, Tasks: four, Servers: wide, Actions: 2, Only: only(ready.Delete)}},
		{"one place", ready.Model{Mistake: ready.PopUnchecked, Tasks: two, Servers: fleet, Actions: 1}},

		{"offer", ready.Model{Mistake: ready.OfferForever, Tasks: crowd, Servers: apart}},
		{"offer", ready.Model{Mistake: ready.OfferedToAll, Tasks: crowd, Servers: apart, Faults: 1, Only: only(ready.Stop)}},
		{"offer", ready.Model{Mistake: ready.OtherLinesPassed, Tasks: crowd, Servers: apart}},

		{"hope", ready.Model{Mistake: ready.ClockUnseen, Tasks: one, Servers: single, Faults: 2, Only: only(ready.ClockBack, ready.Crash)}},
		{"order", ready.Model{Mistake: ready.OldAnswerCalms, Tasks: two, Servers: fleet, Faults: 2, Only: only(ready.ClockBack, ready.StepUnheard)}},
		{"tickets", ready.Model{Mistake: ready.TicketByClock, Tasks: two, Servers: fleet, Faults: 1, Only: only(ready.ClockBack)}},
		{"lost", ready.Model{Mistake: ready.UntilForgotten, Tasks: two, Servers: fleet}},

		{"unheard", ready.Model{Mistake: ready.RecordUnchecked, Tasks: two, Servers: wide, Faults: 1}},
		{"unheard", ready.Model{Mistake: ready.OlderAccepted, Tasks: two, Servers: fleet, Faults: 1}},
		{"unheard", ready.Model{Mistake: ready.AgedFetches, Tasks: two, Servers: fleet, Faults: 2, Only: only(ready.StepDelayed, ready.Crash)}},
		{"one holder", ready.Model{Mistake: ready.ReplayUnconfirmed, Tasks: two, Servers: fleet, Faults: 1}},
		{"one holder", ready.Model{Mistake: ready.TrustFromAnswer, Tasks: two, Servers: fleet, Faults: 1}},
		{"one holder", ready.Model{Mistake: ready.TrustsTooLong, Tasks: two, Servers: fleet, Faults: 1}},
		{"prompt", ready.Model{Mistake: ready.NothingSentAgain, Tasks: two, Servers: fleet, Faults: 1, Only: only(ready.ReplicaStops)}},

		{"own outcome", ready.Model{Mistake: ready.OutcomeUnchecked, Tasks: two, Servers: fleet, Faults: 1}},
		{"own outcome", ready.Model{Mistake: ready.LeftUnchecked, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(ready.StepFails)}},
		{"own lock", ready.Model{Mistake: ready.LostSettles, Tasks: two, Servers: fleet, Faults: 1}},
		{"one holder", ready.Model{Mistake: ready.ReleaseOfAnothers, Tasks: two, Servers: fleet, Faults: 1}},
		{"prompt", ready.Model{Mistake: ready.StaleKeepsLock, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", ready.Model{Mistake: ready.AsksFirst, Tasks: plain, Servers: fleet, Faults: 1}},
		{"order", ready.Model{Mistake: ready.AsksInAnyOrder, Tasks: plain, Servers: wide}},
		{"prompt", ready.Model{Mistake: ready.AskAgainParks, Tasks: plain, Servers: fleet, Faults: 1, Only: only(ready.StepFails)}},
		{"slots", ready.Model{Mistake: ready.AsksUncounted, Tasks: unlike, Servers: single}},

		{"turns", ready.Model{Mistake: ready.TurnForgotten, Tasks: others, Servers: wide, Failures: 1, Turns: true}},
		{"turns", ready.Model{Mistake: ready.OwnFirst, Tasks: pairs, Servers: wider, Turns: true}},

		{"late", ready.Model{Mistake: ready.NobodyTold, Tasks: pairs, Servers: pair}},
		{"late", ready.Model{Mistake: ready.PoppedForgotten, Tasks: others, Servers: fleet}},
		{"late", ready.Model{Mistake: ready.OthersNotTold, Tasks: queues, Servers: apart}},
	}
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range mistakes() {
		t.Run(string(tt.m.Mistake), func(t *testing.T) {
			t.Parallel()
			report := tt.m.Explore()
			t.Log(report)
			if report.Property() != tt.property {
				t.Errorf("want the property %q broken, have %q", tt.property, report.Broken)
			}
		})
	}
}
