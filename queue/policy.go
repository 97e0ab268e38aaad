package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
)

// OnBusy says what becomes of a task that finds the lock of its resource busy.
type OnBusy string

// What a task does when its resource is busy.
const (
	// OnBusyPark parks the task. It waits in the wait queue without a worker. This is the default.
	OnBusyPark OnBusy = "park"
	// OnBusyWait has the worker wait in the wait queue, for [Policy.Wait] at most. Then the task is
	// parked, and keeps its position, unless its MaxWait is over. On one Redis to park is cheaper,
	// however short the task is.
	OnBusyWait OnBusy = "wait"
	// OnBusyReject ends the attempt at once, with a [*RejectedError].
	OnBusyReject OnBusy = "reject"
	// OnBusyCoalesce drops the task if an equal one waits for the resource already: one of the same
	// kind and payload. The task then counts as done. Its result, see [Options.Retention], is
	// "coalesced: <id of the one that waits>".
	OnBusyCoalesce OnBusy = "coalesce"
	// OnBusyReplace has the task take the position of a waiting task of the same kind, which is
	// deleted. Of the two the one stays that a worker took later. So the latest of them runs, unless its
	// [Policy.MaxWait] ends it.
	OnBusyReplace OnBusy = "replace"
)

// A Policy says what becomes of a task whose resource is busy. The zero value parks the task, which
// waits for as long as it takes.
//
// A policy acts when a worker has taken the task and found the lock busy. It says nothing of tasks that
// are pending behind others. With a [GuardConfig.Store] it concerns tasks that wait for other tasks.
//
// The handler of a task may have begun when its worker dies or shuts down, or when it loses its lock. Such
// a task comes again for no failure of its own. From then on it is parked whenever its resource is busy,
// and no other task replaces it. Only MaxWait holds for it. With OnBusyWait its worker may wait first.
type Policy struct {
	// OnBusy defaults to OnBusyPark.
	OnBusy OnBusy
	// Wait is how long the worker waits with OnBusyWait, 1 ms to 1 min. It waits for half of the task's
	// [Options.Timeout] at most, as that counts meanwhile, and for no longer than MaxWait.
	Wait time.Duration
	// MaxWait is how long the task may wait for its resource, from when it first came to it, or came
	// again after a failure or a crash. With OnBusyReplace a task takes over the time of the
	// task that it replaces, unless that time is longer ago than MaxWait. A task that has waited for longer
	// does not run. It is archived with an error that matches [ErrMaxWait], or given to
	// [GuardConfig.OnMaxWait]. That uses no retry. Tasks that are due are looked for every
	// DelayedTaskCheckInterval of asynq.Config, so the task ends up to so much and a second later. 0 means
	// no end; at least 1 s.
	MaxWait time.Duration
	// MaxWaiting is how many tasks and others may wait for the resource. A task that would be one more
	// is rejected as by OnBusyReject. A task that waits already is not. With OnBusyWait the task is rejected
	// before its worker waits, or when it is to be parked after that. Of the workers of a server that wait
	// for one resource only the first counts. 0 means no end.
	MaxWaiting int
	// UseRetries has a rejected task use a retry, and come again as after a failure of its own.
	// Otherwise it is archived.
	UseRetries bool
}

// Errors of tasks that a [Policy] has ended, for errors.Is.
var (
	// ErrRejected says that a task was not to wait, see [OnBusyReject] and [Policy.MaxWaiting]. This
	// attempt has not run. Enqueue the task again when its resource is less busy.
	ErrRejected = errors.New("rejected")
	// ErrMaxWait says that a task has waited for longer than its [Policy.MaxWait]. The task has not run
	// since it came to wait, and is archived unless [GuardConfig.OnMaxWait] takes it.
	ErrMaxWait = errors.New("waited too long")
)

// A RejectedError says why a task was not to wait for its resource. It matches [ErrRejected].
type RejectedError struct {
	Resource string
	Holder   string // who held the lock
	Waiting  int    // how many waited, if those were too many; else 0

	archive bool
}

func (e *RejectedError) Error() string {
	if e.Waiting > 0 {
		return fmt.Sprintf("rejected: %d wait for %s already", e.Waiting, e.Resource)
	}
	return fmt.Sprintf("rejected: %s is held by %s", e.Resource, e.Holder)
}

// Is reports whether target is [ErrRejected].
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// Unwrap has asynq archive the task, unless it uses a retry.
func (e *RejectedError) Unwrap() error {
	if e.archive {
		return asynq.SkipRetry
	}
	return nil
}

// MaxPriority is the highest [Options.Priority].
const MaxPriority = 9

// Headers of a task that say how it waits. A [Client] sets them by its [Options]; so can every other
// client of asynq's queues. A task whose headers cannot be read is archived with an error that says so.
const (
	// HeaderPriority is [Options.Priority] as a digit.
	HeaderPriority = headerPrefix + "priority"
	// HeaderPolicy is [Options.Policy] as JSON, such as {"on_busy":"wait","wait":"20ms"} or
	// {"max_wait":"1m","max_waiting":100,"use_retries":true}.
	HeaderPolicy = headerPrefix + "policy"
)

// check returns the field that cannot work and what is wanted; "" for a policy that works.
func (p Policy) check() (field, want string, have any) {
	rejects := p.OnBusy == OnBusyReject
	switch {
	case !slices.Contains([]OnBusy{"", OnBusyPark, OnBusyWait, OnBusyReject, OnBusyCoalesce, OnBusyReplace}, p.OnBusy):
		return "on busy", "want park, wait, reject, coalesce or replace", p.OnBusy
	case p.OnBusy == OnBusyWait && (p.Wait < time.Millisecond || p.Wait > time.Minute):
		return "wait", "want 1ms to 1m0s", p.Wait
	case p.OnBusy != OnBusyWait && p.Wait != 0:
		return "wait", "want it with OnBusyWait alone", p.Wait
	case p.MaxWait < 0 || p.MaxWait > 0 && p.MaxWait < time.Second:
		return "max wait", "want 0, or 1s or more", p.MaxWait
	case p.MaxWaiting < 0:
		return "max waiting", "want 0 or more", p.MaxWaiting
	case rejects && (p.MaxWait > 0 || p.MaxWaiting > 0):
		return "on busy", "want no MaxWait and no MaxWaiting with OnBusyReject, as such a task never waits", p.OnBusy
	case p.UseRetries && !rejects && p.MaxWaiting == 0:
		return "use retries", "want OnBusyReject or a MaxWaiting with it", p.UseRetries
	}
	return "", "", nil
}

// parks reports whether the policy is that of a task without one.
func (p Policy) parks() bool { return p == Policy{} || p == Policy{OnBusy: OnBusyPark} }

// A policyText is a [Policy] in the header of a task, as JSON.
type policyText struct {
	OnBusy     OnBusy `json:"on_busy,omitempty"`
	Wait       string `json:"wait,omitempty"`
	MaxWait    string `json:"max_wait,omitempty"`
	MaxWaiting int    `json:"max_waiting,omitempty"`
	UseRetries bool   `json:"use_retries,omitempty"`
}

// text returns the policy as a header.
func (p Policy) text() string {
	t := policyText{OnBusy: p.OnBusy, MaxWaiting: p.MaxWaiting, UseRetries: p.UseRetries}
	for _, d := range []struct {
		value time.Duration
		to    *string
	}{{p.Wait, &t.Wait}, {p.MaxWait, &t.MaxWait}} {
		if d.value != 0 {
			*d.to = d.value.String()
		}
	}
	text, _ := json.Marshal(t) // a struct of texts and numbers
	return string(text)
}

// ParsePolicy reads a policy from the text of a header [HeaderPolicy]. It also refuses one that a server
// would refuse. An error names the field and the value.
func ParsePolicy(text string) (p Policy, err error) {
	const want = `want JSON such as {"on_busy":"reject"}`
	var t policyText
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil {
		return p, fmt.Errorf("%s, have %q", want, clip(text))
	}
	p = Policy{OnBusy: t.OnBusy, MaxWaiting: t.MaxWaiting, UseRetries: t.UseRetries}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{{"wait", t.Wait, &p.Wait}, {"max_wait", t.MaxWait, &p.MaxWait}} {
		if d.text == "" {
			continue
		}
		if *d.to, err = time.ParseDuration(d.text); err != nil {
			return p, fmt.Errorf("%s: want a duration such as 30s, have %q", d.name, clip(d.text))
		}
	}
	if field, want, have := p.check(); field != "" {
		return p, fmt.Errorf("%s: %s, have %v", field, want, have)
	}
	return p, nil
}

// policyOf returns the policy of a task: its own, or that of its kind; nil for one that parks.
func (g *Guard) policyOf(t *asynq.Task) (*Policy, error) {
	p, text := g.cfg.Policies[t.Type()], t.Headers()[HeaderPolicy]
	if text != "" {
		var err error
		if p, err = ParsePolicy(text); err != nil {
			return nil, fmt.Errorf("%s: header %s: %w", t.Type(), HeaderPolicy, err)
		}
	}
	if p.parks() {
		return nil, nil //nolint:nilnil // no policy, and no error
	}
	return &p, nil
}

// advanceOf returns how much earlier the priority of a task has it come in its wait queue, µs.
func advanceOf(t *asynq.Task) (int64, error) {
	text, ok := t.Headers()[HeaderPriority]
	if !ok {
		return 0, nil
	}
	level, err := strconv.Atoi(text)
	if err != nil || len(text) > 1 || level < 0 || level > MaxPriority {
		return 0, fmt.Errorf("%s: header %s: want 0 to %d, have %q", t.Type(), HeaderPriority, MaxPriority, clip(text))
	}
	return int64(level) * asynqredis.Advance.Microseconds(), nil
}

// checkPolicies returns an error that names the first policy that cannot work.
func (c GuardConfig) checkPolicies() error {
	for _, kind := range slices.Sorted(maps.Keys(c.Policies)) {
		p := c.Policies[kind]
		field, want, have := p.check()
		switch {
		case strings.TrimSpace(kind) == "" || strings.Contains(kind, "\n"):
			return fmt.Errorf("queue: policies: want the kind of a task, have %q", clip(kind))
		case field != "":
			return fmt.Errorf("queue: policies: %s: %s: %s, have %v", kind, field, want, have)
		case p.OnBusy == OnBusyWait && c.Store != nil:
			return fmt.Errorf("queue: policies: %s: on busy: want no wait with a store of another kind", kind)
		}
	}
	return nil
}

// policyKinds returns the kinds that have a policy, as dequeue.lua reads them.
func (c GuardConfig) policyKinds() string {
	var kinds strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(c.Policies)) {
		if !c.Policies[kind].parks() {
			kinds.WriteString("\n" + kind + "\n")
		}
	}
	return kinds.String()
}
