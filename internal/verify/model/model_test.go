package model_test

import (
	"maps"
	"os"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model"
)

// The tasks of a model, in the order in which they come.
var (
	two    = []model.Spec{{}, {}}
	one    = []model.Spec{{}}
	three  = []model.Spec{{}, {}, {}}
	four   = []model.Spec{{}, {}, {}, {}}
	pairs  = []model.Spec{{}, {}, {Resource: 1}, {Resource: 1}}
	others = []model.Spec{{}, {}, {Resource: model.Unguarded}, {Resource: model.Unguarded}}
	plain  = []model.Spec{{Plain: true}, {Plain: true}}
	unlike = []model.Spec{{Plain: true}, {Plain: true, Resource: 1}}
	mixed  = []model.Spec{{Plain: true}, {}}
	queues = []model.Spec{{}, {Queue: 1}}
	crowd  = []model.Spec{{}, {Queue: 1}, {Queue: 1}}
	set    = []model.Spec{{Resource: model.Both}}
	sets   = []model.Spec{{Resource: model.Both}, {Resource: model.Both}}
	around = []model.Spec{{}, {Resource: model.Both}, {Resource: 1}}
	beside = []model.Spec{{}, {Resource: model.Both}}
	behind = []model.Spec{{}, {}, {Resource: model.Both}}
	rows   = []model.Spec{{Batched: true}, {Batched: true}}
	batch  = []model.Spec{{Batched: true}, {Batched: true}, {Batched: true}}
	kinds  = []model.Spec{{Batched: true}, {Batched: true}, {Resource: model.Both, Batched: true}, {}}
	mates  = []model.Spec{{Batched: true}, {Batched: true}, {Batched: true}, {Plain: true, Batched: true}}
	parted = []model.Spec{{Batched: true}, {}, {Batched: true}}
	across = []model.Spec{{Resource: model.Both}, {Queue: 1}, {Queue: 1, Resource: model.Both}}
)

// The servers of a model.
var (
	fleet  = []model.Serving{{Queues: []uint8{0}, Slots: 1}, {Queues: []uint8{0}, Slots: 1}}
	single = []model.Serving{{Queues: []uint8{0}, Slots: 1}}
	wide   = []model.Serving{{Queues: []uint8{0}, Slots: 2}}
	wider  = []model.Serving{{Queues: []uint8{0}, Slots: 3}}
	pair   = []model.Serving{{Queues: []uint8{0}, Slots: 2}, {Queues: []uint8{0}, Slots: 1}}
	apart  = []model.Serving{{Queues: []uint8{0}, Slots: 1}, {Queues: []uint8{1}, Slots: 1}}
	both   = []model.Serving{{Queues: []uint8{0, 1}, Slots: 2}}
	second = []model.Serving{{Queues: []uint8{1}, Slots: 1}}
)

// only returns faults and actions.
func only(events ...model.Event) []model.Event { return events }

// TestProtocol explores the protocol as it is: small models always, all in make verify. SIDING_MODEL=large adds
// those that take minutes and gigabytes.
func TestProtocol(t *testing.T) {
	t.Parallel()
	models := map[string]model.Model{
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
		"two tasks, a failover":               {Tasks: two, Servers: fleet, Faults: 1, Only: only(model.ReplicaStops)},
		"a server with two slots, two faults": {Tasks: two, Servers: wide, Faults: 2},
		"a set beside one, a fault":           {Tasks: beside, Servers: fleet, Faults: 1},
		"a set between two, a failure":        {Tasks: around, Servers: fleet, Failures: 1},
		"a batch of two, a fault":             {Tasks: rows, Servers: fleet, Faults: 1},
		"a batch of three, a failure":         {Tasks: batch, Servers: fleet, Failures: 1},
	}
	if verify.All() {
		maps.Copy(models, map[string]model.Model{
			"two tasks, two faults":                         {Tasks: two, Servers: fleet, Faults: 2},
			"two tasks, a failure and an action":            {Tasks: two, Servers: fleet, Failures: 1, Actions: 1},
			"two tasks, two actions":                        {Tasks: two, Servers: fleet, Actions: 2},
			"two tasks, three faults of servers and calls":  {Tasks: two, Servers: fleet, Faults: 3, Only: only(model.Crash, model.CutOff, model.StepUnheard, model.StepDelayed)},
			"three tasks, a fault and an action":            {Tasks: three, Servers: fleet, Faults: 1, Actions: 1},
			"three tasks, a fault and a failure":            {Tasks: three, Servers: fleet, Faults: 1, Failures: 1},
			"four tasks, a fault":                           {Tasks: four, Servers: fleet, Faults: 1},
			"four tasks, two actions":                       {Tasks: four, Servers: wide, Actions: 2},
			"two resources in turns, a fault":               {Tasks: pairs, Servers: pair, Turns: true, Faults: 1},
			"two resources, one slot, a fault, an action":   {Tasks: pairs, Servers: single, Faults: 1, Actions: 1},
			"tasks of plain clients, two faults":            {Tasks: plain, Servers: fleet, Faults: 2},
			"tasks of plain clients, a fault, an action":    {Tasks: plain, Servers: fleet, Faults: 1, Actions: 1},
			"a plain client's task and another, two faults": {Tasks: mixed, Servers: fleet, Faults: 2},
			"a plain client's task, a failure, a lost key":  {Tasks: mixed, Servers: fleet, Faults: 1, Failures: 1, Only: only(model.Evict)},
			"plain clients, two resources, a fault":         {Tasks: unlike, Servers: fleet, Faults: 1, Actions: 1},
			"two queues, two servers, a failure":            {Tasks: crowd, Servers: apart, Failures: 1},
			"two queues, two servers, two faults":           {Tasks: queues, Servers: apart, Faults: 2},
			"two queues, two servers, two actions":          {Tasks: crowd, Servers: apart, Actions: 2},
			"a set, two faults":                             {Tasks: set, Servers: single, Faults: 2},
			"two sets, a fault":                             {Tasks: sets, Servers: fleet, Faults: 1},
			"a set beside one, two faults":                  {Tasks: beside, Servers: fleet, Faults: 2},
			"a set beside one, a fault, an action":          {Tasks: beside, Servers: fleet, Faults: 1, Actions: 1},
			"a set beside one, a fault, a failure":          {Tasks: beside, Servers: fleet, Faults: 1, Failures: 1},
			"a set between two, a fault":                    {Tasks: around, Servers: fleet, Faults: 1},
			"a set between two, an action":                  {Tasks: around, Servers: fleet, Actions: 1},
			"sets across two queues":                        {Tasks: across, Servers: apart},
			"sets across two queues, a fault":               {Tasks: across, Servers: apart, Faults: 1},
			"sets across two queues, a failure":             {Tasks: across, Servers: apart, Failures: 1},
			"sets across two queues, an action":             {Tasks: across, Servers: apart, Actions: 1},
			"a batch of three, a fault":                     {Tasks: batch, Servers: fleet, Faults: 1},
			"a batch of three, an action":                   {Tasks: batch, Servers: fleet, Actions: 1},
			"a batch and one of another kind, a fault":      {Tasks: parted, Servers: fleet, Faults: 1},
			"a batch of two, two faults":                    {Tasks: rows, Servers: fleet, Faults: 2},
			"a batch of two, a fault, an action":            {Tasks: rows, Servers: fleet, Faults: 1, Actions: 1},
		})
	}
	for _, tt := range mistakes() {
		if name := "without: " + string(tt.m.Mistake); verify.All() { // what is found is the mistake's
			tt.m.Mistake = model.NoMistake
			models[name] = tt.m
		}
	}
	if os.Getenv("SIDING_MODEL") == "large" {
		maps.Copy(models, map[string]model.Model{
			"a set between two, a failure, an action":     {Tasks: around, Servers: fleet, Failures: 1, Actions: 1},
			"two tasks, a fault, a failure and an action": {Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Actions: 1},
			"two queues, a server, a fault, an action":    {Tasks: crowd, Servers: both, Faults: 1, Actions: 1},
			"three tasks, a failover and another fault":   {Tasks: three, Servers: fleet, Faults: 2, Only: only(model.ReplicaStops, model.Crash, model.StepUnheard)},
			"two queues, two servers, a fault, a failure": {Tasks: crowd, Servers: apart, Faults: 1, Failures: 1},
			"two queues, two servers, a fault, an action": {Tasks: crowd, Servers: apart, Faults: 1, Actions: 1},
			"two queues, a failover and another fault":    {Tasks: crowd, Servers: apart, Faults: 2, Only: only(model.ReplicaStops, model.Crash, model.CutOff)},
		})
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := m.Explore()
			t.Log(report)
			expect.That(t, report.Broken == "", "want nothing broken")
		})
	}
}

// A found mistake is one that the model finds, by the property that exists for it.
type found struct {
	property string
	m        model.Model
}

func mistakes() []found {
	return []found{
		{"score", model.Model{Mistake: model.OwnLineOnly, Tasks: queues, Servers: apart}},
		{"score", model.Model{Mistake: model.LockerUnmarked, Tasks: two, Servers: fleet, Actions: 1}},
		{"listed", model.Model{Mistake: model.LineUnlisted, Tasks: queues, Servers: apart}},
		{"ready", model.Model{Mistake: model.ParkNotReady, Tasks: two, Servers: fleet}},
		{"hope", model.Model{Mistake: model.NoUpkeep, Tasks: two, Servers: fleet, Faults: 1, Only: only(model.Evict)}},

		{"score", model.Model{Mistake: model.ScoredAhead, Tasks: four, Servers: wide}},
		{"score", model.Model{Mistake: model.ForeignAsOurs, Tasks: two, Servers: fleet, Faults: 1, Only: only(model.ForeignTakes)}},
		{"ready", model.Model{Mistake: model.LookForgets, Tasks: two, Servers: fleet, Faults: 1}},
		{"score", model.Model{Mistake: model.HeadNotLowered, Tasks: mixed, Servers: fleet, Faults: 1, Failures: 1, Only: only(model.ForeignTakes)}},

		{"lost", model.Model{Mistake: model.PopsFirst, Tasks: two, Servers: fleet, Faults: 1, Only: only(model.StepFails)}},
		{"lost", model.Model{Mistake: model.LeavesFirst, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(model.StepFails)}},
		{"lost", model.Model{Mistake: model.HashFirst, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(model.StepFails)}},
		{"own outcome", model.Model{Mistake: model.LeftoverComesBack, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(model.StepFails)}},

		{"one holder", model.Model{Mistake: model.RecoveryByLease, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", model.Model{Mistake: model.LeaseLater, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", model.Model{Mistake: model.LeaseRenewedAlone, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", model.Model{Mistake: model.RecoverLast, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", model.Model{Mistake: model.RecoveryBounded, Tasks: pairs, Servers: pair, Faults: 1, Only: only(model.Crash)}},
		{"order", model.Model{Mistake: model.BackToPending, Tasks: two, Servers: fleet, Faults: 1}},
		{"crashes", model.Model{Mistake: model.CrashUsesRetry, Tasks: two, Servers: fleet, Faults: 1}},

		{"one place", model.Model{Mistake: model.HeadUnverified, Tasks: two, Servers: fleet, Actions: 1}},
		{"heads", model.Model{Mistake: model.TicketUnverified, Tasks: two, Servers: fleet, Actions: 2}},
		{"order", model.Model{Mistake: model.StoppedPassed, Tasks: two, Servers: fleet, Failures: 1}},
		{"score", model.Model{Mistake: model.GoneOnUnmarked, Tasks: two, Servers: fleet, Failures: 1}},
		{"tickets", model.Model{Mistake: model.TicketForgotten, Tasks: two, Servers: fleet, Faults: 1}},
		{"score", model.Model{Mistake: model.PassedForLater, Tasks: four, Servers: wide, Actions: 2, Only: only(model.Delete)}},
		{"one place", model.Model{Mistake: model.PopUnchecked, Tasks: two, Servers: fleet, Actions: 1}},

		{"offer", model.Model{Mistake: model.OfferForever, Tasks: crowd, Servers: apart}},
		{"offer", model.Model{Mistake: model.OfferedToAll, Tasks: crowd, Servers: apart, Faults: 1, Only: only(model.CutOff)}},
		{"offer", model.Model{Mistake: model.OtherLinesPassed, Tasks: crowd, Servers: apart}},

		{"order", model.Model{Mistake: model.OneHead, Tasks: behind, Servers: fleet}},
		{"prompt", model.Model{Mistake: model.TakesSome, Tasks: beside, Servers: fleet}},
		{"lost", model.Model{Mistake: model.EntersOneLine, Tasks: sets, Servers: fleet}},
		{"one place", model.Model{Mistake: model.LeavesOneLine, Tasks: sets, Servers: fleet}},
		{"score", model.Model{Mistake: model.MarksOneLine, Tasks: around, Servers: fleet}},
		{"score", model.Model{Mistake: model.BlockedForLater, Tasks: beside, Servers: fleet, Faults: 1, Only: only(model.ForeignTakes)}},

		{"one holder", model.Model{Mistake: model.FirstEndsFirst, Tasks: rows, Servers: fleet}},
		{"one holder", model.Model{Mistake: model.MembersFree, Tasks: rows, Servers: fleet}},
		{"one holder", model.Model{Mistake: model.LosesAlone, Tasks: rows, Servers: fleet, Faults: 1, Only: only(model.CutOff)}},
		{"own outcome", model.Model{Mistake: model.RecoversMembers, Tasks: rows, Servers: fleet, Faults: 1, Only: only(model.CutOff)}},
		{"alone", model.Model{Mistake: model.CrashedJoins, Tasks: rows, Servers: fleet, Faults: 1, Only: only(model.Crash)}},
		{"order", model.Model{Mistake: model.JoinsPast, Tasks: parted, Servers: fleet}},
		{"order", model.Model{Mistake: model.KeepsUnheard, Tasks: batch, Servers: fleet, Faults: 1, Actions: 1, Only: only(model.StepUnheard, model.Revoke)}},

		{"hope", model.Model{Mistake: model.ClockUnseen, Tasks: one, Servers: single, Faults: 2, Only: only(model.ClockBack, model.Crash)}},
		{"order", model.Model{Mistake: model.OldAnswerCalms, Tasks: two, Servers: fleet, Faults: 2, Only: only(model.ClockBack, model.StepUnheard)}},
		{"tickets", model.Model{Mistake: model.TicketByClock, Tasks: two, Servers: fleet, Faults: 1, Only: only(model.ClockBack)}},
		{"lost", model.Model{Mistake: model.UntilForgotten, Tasks: two, Servers: fleet}},

		{"unheard", model.Model{Mistake: model.RecordUnchecked, Tasks: two, Servers: wide, Faults: 1}},
		{"unheard", model.Model{Mistake: model.OlderAccepted, Tasks: two, Servers: fleet, Faults: 1}},
		{"unheard", model.Model{Mistake: model.AgedFetches, Tasks: two, Servers: fleet, Faults: 2, Only: only(model.StepDelayed, model.Crash)}},
		{"one holder", model.Model{Mistake: model.ReplayUnconfirmed, Tasks: two, Servers: fleet, Faults: 1}},
		{"one holder", model.Model{Mistake: model.TrustFromAnswer, Tasks: two, Servers: fleet, Faults: 1}},
		{"one holder", model.Model{Mistake: model.TrustsTooLong, Tasks: two, Servers: fleet, Faults: 1}},
		{"prompt", model.Model{Mistake: model.NothingSentAgain, Tasks: two, Servers: fleet, Faults: 1, Only: only(model.ReplicaStops)}},

		{"own outcome", model.Model{Mistake: model.OutcomeUnchecked, Tasks: two, Servers: fleet, Faults: 1}},
		{"own outcome", model.Model{Mistake: model.LeftUnchecked, Tasks: two, Servers: fleet, Faults: 1, Failures: 1, Only: only(model.StepFails)}},
		{"own lock", model.Model{Mistake: model.LostSettles, Tasks: two, Servers: fleet, Faults: 1}},
		{"one holder", model.Model{Mistake: model.ReleaseOfAnothers, Tasks: two, Servers: fleet, Faults: 1}},
		{"prompt", model.Model{Mistake: model.StaleKeepsLock, Tasks: two, Servers: fleet, Faults: 1}},
		{"order", model.Model{Mistake: model.AsksFirst, Tasks: plain, Servers: fleet, Faults: 1}},
		{"order", model.Model{Mistake: model.AsksInAnyOrder, Tasks: plain, Servers: wide}},
		{"prompt", model.Model{Mistake: model.AskAgainParks, Tasks: plain, Servers: fleet, Faults: 1, Only: only(model.StepFails)}},

		{"turns", model.Model{Mistake: model.TurnForgotten, Tasks: others, Servers: wide, Failures: 1, Turns: true}},
		{"turns", model.Model{Mistake: model.OwnFirst, Tasks: pairs, Servers: wider, Turns: true}},

		{"late", model.Model{Mistake: model.NobodyTold, Tasks: pairs, Servers: pair}},
		{"late", model.Model{Mistake: model.PoppedForgotten, Tasks: others, Servers: fleet}},
		{"late", model.Model{Mistake: model.OthersNotTold, Tasks: queues, Servers: apart}},
	}
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range mistakes() {
		t.Run(string(tt.m.Mistake), func(t *testing.T) {
			t.Parallel()
			report := tt.m.Explore()
			t.Log(report)
			expect.That(t, report.Property() == tt.property, "want the property %q broken, have %q", tt.property, report.Broken)
		})
	}
}
