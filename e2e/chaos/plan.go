package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A Scenario is a kind of Redis that the fleet works on.
type Scenario string

// The scenarios.
const (
	Standalone Scenario = "standalone"
	Sentinel   Scenario = "sentinel"
	Cluster    Scenario = "cluster"
)

// A Kind is a kind of fault, by the name that people see.
type Kind string

// The kinds of fault.
const (
	KillWorker   Kind = "worker killed (kill -9)"
	StopWorker   Kind = "worker stopped for longer than the TTL (SIGSTOP)"
	HaltWorker   Kind = "worker stopped for 0.3 s, time and again (SIGSTOP)"
	RollingStart Kind = "rolling restart of the fleet"

	RestartKept  Kind = "Redis killed, restarted with its data (AOF)"
	RestartEmpty Kind = "Redis killed, restarted empty"
	HangRedis    Kind = "Redis stopped for 1 to 4 s (SIGSTOP)"
	Failover     Kind = "master killed, failover"
	StopMaster   Kind = "master stopped until replaced (SIGSTOP)"
	FlushScripts Kind = "SCRIPT FLUSH"
	// Uninjected is not planned. Such a failover comes by itself on a machine that is too busy.
	Uninjected Kind = "failover that was not injected"
	// SlowDisk is not planned. Redis says for how long its disk let it stand still.
	SlowDisk Kind = "disk that let Redis stand still, not injected"

	DelayReplies   Kind = "replies delayed"
	CutConnections Kind = "connections cut"
	SwallowReplies Kind = "replies swallowed"
	LosePackets    Kind = "nothing passes, either way"

	PauseQueue   Kind = "queue paused"
	DeleteTasks  Kind = "waiting tasks deleted"
	ArchiveTasks Kind = "waiting tasks archived, then run again"
	DeleteLock   Kind = "key of a held lock deleted"

	RevokeLease Kind = "lease of a running task revoked"

	OverrideLimit Kind = "resource paused, or its limit lowered"
)

// A lane injects its faults one after another. Lanes run side by side, so that
// faults of different lanes meet.
type lane string

const (
	laneWorkers  lane = "workers"
	laneRedis    lane = "redis"
	laneOperator lane = "operator"
	laneRevoker  lane = "revoker" // an operator, too, whose faults meet those of the other one
	laneLimiter  lane = "limiter" // a third operator
)

// gap returns the least and the most time between two faults of a lane. Redis has peace for long
// enough that the fleet is busy when another fault comes.
func (l lane) gap() (least, most time.Duration) {
	switch l {
	case laneRedis:
		return 2 * time.Second, 6 * time.Second
	case laneRevoker: // most long tasks may come to their end
		return time.Second, 4 * time.Second
	default:
		return 300 * time.Millisecond, 3 * time.Second
	}
}

// A trait says how a kind of fault is injected and what it may do.
type trait struct {
	kind        Kind
	lane        lane
	scenarios   []Scenario
	least, most time.Duration // how long it lasts, as far as that is chosen
	loses       bool          // Redis may forget what it acknowledged
	twoMasters  bool          // a replica becomes the master; for a moment there may be two
	rare        bool          // most have no effect
}

var (
	everywhere = []Scenario{Standalone, Sentinel, Cluster}
	single     = []Scenario{Standalone}
	replicated = []Scenario{Sentinel, Cluster}
)

// traits lists all kinds, in the order of [Verdict.Summary].
var traits = []trait{
	{kind: KillWorker, lane: laneWorkers, scenarios: everywhere, least: 100 * time.Millisecond, most: time.Second},
	{kind: StopWorker, lane: laneWorkers, scenarios: everywhere, least: TTL * 3 / 2, most: 3 * TTL},
	// Each stop is shorter than the TTL.
	{kind: HaltWorker, lane: laneWorkers, scenarios: everywhere, least: 2 * time.Second, most: 4 * time.Second},
	{kind: RollingStart, lane: laneWorkers, scenarios: everywhere},

	{kind: RestartKept, lane: laneRedis, scenarios: single, least: 100 * time.Millisecond, most: 3 * time.Second},
	{kind: RestartEmpty, lane: laneRedis, scenarios: single, least: 100 * time.Millisecond, most: 3 * time.Second, loses: true},
	{kind: HangRedis, lane: laneRedis, scenarios: single, least: time.Second, most: 4 * time.Second},
	{kind: Failover, lane: laneRedis, scenarios: replicated, loses: true, twoMasters: true},
	{kind: StopMaster, lane: laneRedis, scenarios: replicated, loses: true, twoMasters: true},
	{kind: Uninjected, lane: laneRedis, loses: true, twoMasters: true},
	{kind: SlowDisk, lane: laneRedis, rare: true}, // as no task need have begun
	{kind: FlushScripts, lane: laneRedis, scenarios: everywhere},
	{kind: DelayReplies, lane: laneRedis, scenarios: single, least: time.Second, most: 4 * time.Second},
	{kind: CutConnections, lane: laneRedis, scenarios: single, least: 100 * time.Millisecond, most: time.Second},
	{kind: SwallowReplies, lane: laneRedis, scenarios: single, least: 500 * time.Millisecond, most: 4 * time.Second},
	{kind: LosePackets, lane: laneRedis, scenarios: single, least: 500 * time.Millisecond, most: 4 * time.Second},

	{kind: PauseQueue, lane: laneOperator, scenarios: everywhere, least: 200 * time.Millisecond, most: 2 * time.Second},
	{kind: DeleteTasks, lane: laneOperator, scenarios: everywhere},
	{kind: ArchiveTasks, lane: laneOperator, scenarios: everywhere, least: 100 * time.Millisecond, most: 1500 * time.Millisecond},
	{kind: DeleteLock, lane: laneOperator, scenarios: everywhere},

	{kind: RevokeLease, lane: laneRevoker, scenarios: everywhere, rare: true}, // most handlers return before they notice

	{kind: OverrideLimit, lane: laneLimiter, scenarios: everywhere, least: 4 * time.Second, most: 8 * time.Second}, // servers hear of it within a second
}

func (k Kind) trait() trait {
	i := slices.IndexFunc(traits, func(t trait) bool { return t.kind == k })
	if i < 0 {
		panic(fmt.Sprintf("chaos: no such fault: %q", k))
	}
	return traits[i]
}

// away says that Redis does not answer as usual while the fault lasts.
func (k Kind) away() bool { return k.trait().lane == laneRedis && k != FlushScripts }

// An Injection is a fault to come.
type Injection struct {
	Kind Kind
	// At counts from the start of the run. The fault comes later if the one before in its lane
	// is not over by then.
	At time.Duration
	// For is how long it lasts.
	For time.Duration
	// Pick chooses what it hits.
	Pick uint64
}

// Plan returns the faults of a run, lane by lane: the same ones for the same arguments. In each
// lane every kind comes once a round, in random order.
func Plan(seed uint64, s Scenario, length time.Duration) [][]Injection {
	var lanes [][]Injection
	for i, l := range []lane{laneWorkers, laneRedis, laneOperator, laneRevoker, laneLimiter} {
		shortest, longest := l.gap()
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		var kinds []trait
		for _, t := range traits {
			if t.lane == l && slices.Contains(t.scenarios, s) {
				kinds = append(kinds, t)
			}
		}
		var plan []Injection
		for at := time.Duration(0); at < length; {
			r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			for _, t := range kinds {
				at += between(r, shortest, longest)
				last := between(r, t.least, t.most)
				if at+last >= length {
					at = length
					break
				}
				plan = append(plan, Injection{Kind: t.kind, At: at, For: last, Pick: r.Uint64()})
				at += last
			}
		}
		lanes = append(lanes, plan)
	}
	return lanes
}

// Peace returns for how long no fault may begin at that time of a run. Peace is in the last quarter
// of each minute: a resource that stands idle then has no excuse.
func Peace(at time.Duration) time.Duration {
	const every, peace = time.Minute, 15 * time.Second
	if left := every - at%every; left <= peace {
		return left
	}
	return 0
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}
