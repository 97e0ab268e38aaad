package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
)

// OnBusy says what becomes of a task that finds the lock of its resource busy.
type OnBusy string

// What a task does when its resource is busy.
const (
	// OnBusyPark parks the task. It waits in its line without a worker. This is the default.
	OnBusyPark OnBusy = "park"
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

// OnFailure says what becomes of the tasks that wait behind one which has failed.
type OnFailure string

// What those behind a task do that is to be tried again, or is archived. They are the guarded tasks of the same queue and
// resource that came later.
const (
	// OnFailureOvertake lets them go on meanwhile. The task that has failed comes back at the end of the line. This is the
	// default.
	OnFailureOvertake OnFailure = "overtake"
	// OnFailureHold has them wait while the task is to be tried again, in their order. They go on once it has succeeded or is
	// archived.
	OnFailureHold OnFailure = "hold"
	// OnFailureStop has them wait as by OnFailureHold, and also once the task is archived, until an operator has it run, deletes
	// it, or gives it up; see lockctl.
	OnFailureStop OnFailure = "stop"
)

// A Policy says what becomes of a task whose resource is busy, and of those behind a task that has failed. The zero value
// parks the task, which waits for as long as it takes, and is overtaken when it has failed.
//
// OnBusy, MaxWait and MaxWaiting act when a worker has taken the task and found the lock busy, which it is not
// while nobody answers. They say nothing of tasks that are pending behind others. With a [ServerConfig.Store], and in a
// Cluster, OnBusy and MaxWaiting concern tasks that wait for tasks of their own queue.
//
// The handler of a task may have begun when its worker dies or shuts down, or when it loses its lock. Such
// a task comes again for no failure of its own. From then on it is parked whenever its resource is busy,
// and no other task replaces it.
type Policy struct {
	// OnBusy defaults to OnBusyPark.
	OnBusy OnBusy
	// MaxWait is how long the task may wait for its resource, from when it first came to it, or came again after
	// a failure. One whose handler may have begun, and that keeps its place, waits on. With OnBusyReplace a task takes over the time of the
	// task that it replaces, unless that time is longer ago than MaxWait. A task that has waited for longer
	// does not run. It is archived with an error that matches [ErrMaxWait], or given to
	// [ServerConfig.OnMaxWait]. That uses no retry. asynq keeps whole seconds, so the task ends up to two
	// seconds later. 0 means no end; at least 1 s.
	MaxWait time.Duration
	// MaxWaiting is how many tasks and others may wait for the resource. A task that would be one more
	// is rejected as by OnBusyReject. A task that waits already is not. 0 means no end.
	MaxWaiting int
	// UseRetries has a rejected task use a retry, and come again as after a failure of its own.
	// Otherwise it is archived.
	UseRetries bool
	// OnFailure defaults to OnFailureOvertake. It keeps the order of a queue's tasks on a resource through every end of an
	// attempt that has held its lock: failures, lost locks, [Unavailable], a second lock that is busy, crashes that use a retry.
	// The lock itself is free meanwhile: tasks of other queues, and programs that take it by package lock, may have it. A task of
	// higher [Options.Priority] still goes before those that came shortly before it. A task that ends by MaxWait, or by its
	// Deadline while it waits, holds nothing. With limits above one, those that run already go on.
	OnFailure OnFailure
}

// Errors of tasks that a [Policy] has ended, for errors.Is.
var (
	// ErrRejected says that a task was not to wait, see [OnBusyReject] and [Policy.MaxWaiting]. This
	// attempt has not run. Enqueue the task again when its resource is less busy.
	ErrRejected = errors.New("rejected")
	// ErrMaxWait says that a task has waited for longer than its [Policy.MaxWait]. The task has not run
	// since it came to wait, and is archived unless [ServerConfig.OnMaxWait] takes it.
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
		return fmt.Sprintf("rejected: %d wait for %s already", e.Waiting, store.Show(e.Resource))
	}
	return fmt.Sprintf("rejected: %s is held by %s", store.Show(e.Resource), e.Holder)
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
	// HeaderPolicy is [Options.Policy] as JSON, such as {"on_busy":"reject"} or
	// {"max_wait":"1m","max_waiting":100,"use_retries":true}.
	HeaderPolicy = headerPrefix + "policy"
)

// HeaderUnique is "unfinished" for [Options.Unique], and "always" for [Options.UniqueFor]. With another value the task is unique
// as with asynq. Another client gives it beside asynq.Unique, with the time of UniqueFor, or a very long one.
const HeaderUnique = taskredis.HeaderUnique

// check returns the field that cannot work and what is wanted; "" for a policy that works. The words are good for
// programs, files and command lines.
func (p Policy) check() (field, want string, have any) {
	rejects := p.OnBusy == OnBusyReject
	switch {
	case !slices.Contains([]OnBusy{"", OnBusyPark, OnBusyReject, OnBusyCoalesce, OnBusyReplace}, p.OnBusy):
		return "on busy", "want park, reject, coalesce or replace", p.OnBusy
	case !slices.Contains([]OnFailure{"", OnFailureOvertake, OnFailureHold, OnFailureStop}, p.OnFailure):
		return "on failure", "want overtake, hold or stop", p.OnFailure
	case p.MaxWait < 0 || p.MaxWait > 0 && p.MaxWait < time.Second:
		return "max wait", "want 0, or 1s or more", p.MaxWait
	case p.MaxWaiting < 0:
		return "max waiting", "want 0 or more", p.MaxWaiting
	case rejects && p.MaxWait > 0:
		return "max wait", "want none with reject, as such a task never waits", p.MaxWait
	case rejects && p.MaxWaiting > 0:
		return "max waiting", "want none with reject, as such a task never waits", p.MaxWaiting
	case p.UseRetries && !rejects && p.MaxWaiting == 0:
		return "use retries", "want reject, or a limit of waiting tasks, with it", p.UseRetries
	}
	return "", "", nil
}

// compares reports whether the policy compares a task with others that wait for its resource. That is for tasks with one resource:
// of several each would have other tasks in its line.
func (p Policy) compares() bool {
	return p.OnBusy == OnBusyCoalesce || p.OnBusy == OnBusyReplace || p.MaxWaiting > 0
}

// noComparison says what is wrong with a policy that compares tasks, for a task of several resources.
const noComparison = "want none of coalesce, replace and max waiting for a task of several resources"

// parks reports whether a task with this policy just waits while its resource is busy.
func (p Policy) parks() bool {
	return (p.OnBusy == "" || p.OnBusy == OnBusyPark) && p.MaxWait == 0 && p.MaxWaiting == 0
}

// A policyText is a [Policy] in the header of a task, as JSON.
type policyText struct {
	OnBusy     OnBusy `json:"on_busy,omitempty"`
	MaxWait    string `json:"max_wait,omitempty"`
	MaxWaiting int    `json:"max_waiting,omitempty"`
	UseRetries bool   `json:"use_retries,omitempty"`

	OnFailure OnFailure `json:"on_failure,omitempty"`
}

// text returns the policy as a header: the same for all that do the same.
func (p Policy) text() string {
	t := policyText{OnBusy: p.OnBusy, MaxWaiting: p.MaxWaiting, UseRetries: p.UseRetries, OnFailure: p.OnFailure}
	if p.OnBusy == OnBusyPark {
		t.OnBusy = ""
	}
	if p.OnFailure == OnFailureOvertake {
		t.OnFailure = ""
	}
	if p.MaxWait != 0 {
		t.MaxWait = p.MaxWait.String()
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
	err = decoder.Decode(&t)
	if _, end := decoder.Token(); err != nil || !errors.Is(end, io.EOF) { // what follows would be left out in silence
		return p, fmt.Errorf("%s, have %q", want, clip(text))
	}
	p = Policy{OnBusy: t.OnBusy, MaxWaiting: t.MaxWaiting, UseRetries: t.UseRetries, OnFailure: t.OnFailure}
	if t.MaxWait != "" {
		if p.MaxWait, err = time.ParseDuration(t.MaxWait); err != nil {
			return p, fmt.Errorf("max_wait: want a duration such as 30s, have %q", clip(t.MaxWait))
		}
	}
	if field, want, have := p.check(); field != "" {
		return p, fmt.Errorf("%s: %s, have %v", field, want, have)
	}
	return p, nil
}

// policyOf returns the policy of a task: its own, or that of its kind.
func (s *Server) policyOf(m *taskredis.Message) (Policy, error) {
	text := m.Headers[HeaderPolicy]
	if text == "" {
		return s.cfg.Policies[m.Type], nil
	}
	p, err := ParsePolicy(text)
	if err != nil {
		return Policy{}, fmt.Errorf("%s: header %s: %w", m.Type, HeaderPolicy, err)
	}
	return p, nil
}

// onFailure returns what becomes of the line of a task that has failed.
func (s *Server) onFailure(m *taskredis.Message) engine.OnFailure {
	policy, _ := s.policyOf(m) // need has read it before
	switch policy.OnFailure {
	case OnFailureHold:
		return engine.Hold
	case OnFailureStop:
		return engine.Stop
	case "", OnFailureOvertake:
	}
	return engine.Overtake
}

// priorityOf returns the priority of a task.
func priorityOf(m *taskredis.Message) (int, error) {
	text, ok := m.Headers[HeaderPriority]
	if !ok {
		return 0, nil
	}
	level, err := strconv.Atoi(text)
	if err != nil || len(text) > 1 || level < 0 || level > MaxPriority {
		return 0, fmt.Errorf("%s: header %s: want 0 to %d, have %q", m.Type, HeaderPriority, MaxPriority, clip(text))
	}
	return level, nil
}

// checkPolicies returns an error that names the first policy that cannot work.
func (c ServerConfig) checkPolicies() error {
	for _, kind := range slices.Sorted(maps.Keys(c.Policies)) {
		if err := checkKind("policies", kind); err != nil {
			return err
		}
		if field, want, have := c.Policies[kind].check(); field != "" {
			return fmt.Errorf("queue: policies: %s: %s: %s, have %v", kind, field, want, have)
		}
	}
	return nil
}

// policyKinds returns the kinds whose tasks do not just wait.
func (s *Server) policyKinds() []string {
	kinds := slices.Sorted(maps.Keys(s.cfg.Policies))
	return slices.DeleteFunc(kinds, func(kind string) bool { return s.cfg.Policies[kind].parks() })
}

// judge returns the policy as the step goes by it. Equal tasks have the same digest.
func (p Policy) judge(m *taskredis.Message) taskredis.Policy {
	judge := taskredis.Policy{MaxWaiting: p.MaxWaiting, MaxWait: p.MaxWait}
	equal := m.Type
	switch p.OnBusy { //nolint:exhaustive // one that parks has none
	case OnBusyReject:
		judge.OnBusy = taskredis.Reject
	case OnBusyCoalesce:
		judge.OnBusy, equal = taskredis.Coalesce, m.Type+"\x00"+string(m.Payload)
	case OnBusyReplace:
		judge.OnBusy = taskredis.Replace
	}
	if judge.OnBusy == taskredis.Coalesce || judge.OnBusy == taskredis.Replace {
		sum := sha256.Sum256([]byte(equal))
		judge.Equal = hex.EncodeToString(sum[:16])
	}
	return judge
}
