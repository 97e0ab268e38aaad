package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// taskOptions are a task's options as text: the flags of enqueue task, or the
// fields of a line of a stream.
type taskOptions struct {
	Queue     string `json:"queue"`
	ID        string `json:"id"`
	Delay     string `json:"delay"`
	At        string `json:"at"`
	Unique    bool   `json:"unique"`
	UniqueFor string `json:"unique_for"`
	Debounce  string `json:"debounce"`
	MaxDelay  string `json:"max_delay"`
	Retries   *int   `json:"retries"` // nil when not given
	Timeout   string `json:"timeout"`
	Deadline  string `json:"deadline"`
	Retention string `json:"retention"`

	Priority int `json:"priority"`
	policyOptions
}

// policyOptions say what the task does if its resource is busy, and what those behind it do when it has failed.
type policyOptions struct {
	OnBusy     string `json:"on_busy"`
	MaxWait    string `json:"max_wait"`
	MaxWaiting int    `json:"max_waiting"`
	UseRetries bool   `json:"use_retries"`
	OnFailure  string `json:"on_failure"`
}

// addFlags makes a flag of each option but the retries: their flag counts only
// when it is given.
func (o *taskOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Queue, "queue", "", `name of the queue (default "default")`)
	f.StringVar(&o.ID, "id", "", "id of the task; refused if the queue has a task of this id (default random)")
	f.StringVar(&o.Delay, "delay", "", "run it after this `duration`, such as 90s")
	f.StringVar(&o.At, "at", "", "run it at this `time`, such as 2030-01-31T18:00:00Z")
	f.BoolVar(&o.Unique, "unique", false, "refuse it while an equal task is unfinished")
	f.StringVar(&o.UniqueFor, "unique-for", "", "refuse equal tasks for this `duration`, whatever becomes of it")
	f.StringVar(&o.Debounce, "debounce", "", "replace the task of its kind, resource and this `key` that still waits for its delay")
	f.StringVar(&o.MaxDelay, "max-delay", "", "with --debounce: run it no later than this `duration` after the first of those")
	f.StringVar(&o.Timeout, "timeout", "", "`duration` after which an attempt ends (default 30m, unless there is a deadline)")
	f.StringVar(&o.Deadline, "deadline", "", "`time` after which it does not run, also if it waits")
	f.StringVar(&o.Retention, "retention", "", "keep it for this `duration` after its success (default 0)")
	f.IntVar(&o.Priority, "priority", 0, "0 to 9: each level has it wait as if it had come a minute earlier")
	f.StringVar(&o.OnBusy, "on-busy", "", "`policy` if its resource is busy: park, reject, coalesce or replace (default that of its kind, or park)")
	f.StringVar(&o.MaxWait, "max-wait", "", "archive it if it has waited for this `duration`")
	f.IntVar(&o.MaxWaiting, "max-waiting", 0, "reject it if so many wait for its resource (default no end)")
	f.BoolVar(&o.UseRetries, "use-retries", false, "have it use a retry when it is rejected, and not be archived")
	f.StringVar(&o.OnFailure, "on-failure", "", "what those behind it for its resource do when it has failed: `overtake`, hold or stop (default that of its kind, or overtake)")
}

// options reads the texts. Errors name the field of a line of a stream; [queue.ClientConfig.Check] checks the rest.
func (o taskOptions) options() (*queue.Options, error) {
	opts := &queue.Options{Queue: o.Queue, TaskID: o.ID, Priority: o.Priority, Unique: o.Unique, Debounce: o.Debounce}
	var errs [8]error
	opts.Delay, errs[0] = duration("delay", o.Delay)
	opts.UniqueFor, errs[1] = duration("unique_for", o.UniqueFor)
	opts.Timeout, errs[2] = duration("timeout", o.Timeout)
	opts.Retention, errs[3] = duration("retention", o.Retention)
	opts.At, errs[4] = moment("at", o.At)
	opts.Deadline, errs[5] = moment("deadline", o.Deadline)
	opts.Policy, errs[6] = o.policy()
	opts.MaxDelay, errs[7] = duration("max_delay", o.MaxDelay)
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	if o.Retries != nil {
		switch opts.Retries = *o.Retries; {
		case opts.Retries < 0:
			return nil, fmt.Errorf("retries: want 0 or more, have %d", opts.Retries)
		case opts.Retries == 0:
			opts.Retries = queue.NoRetries
		}
	}
	return opts, nil
}

// policy returns nil if no option says what the policy is.
func (o policyOptions) policy() (*queue.Policy, error) {
	if o == (policyOptions{}) {
		return nil, nil //nolint:nilnil // no policy, and no error
	}
	p := &queue.Policy{OnBusy: queue.OnBusy(o.OnBusy), MaxWaiting: o.MaxWaiting, UseRetries: o.UseRetries, OnFailure: queue.OnFailure(o.OnFailure)}
	var err error
	p.MaxWait, err = duration("max_wait", o.MaxWait)
	return p, err
}

func duration(name, text string) (d time.Duration, err error) {
	if text == "" {
		return 0, nil
	}
	if d, err = time.ParseDuration(text); err != nil {
		err = fmt.Errorf("%s: want a duration such as 90s or 1h30m, have %.60q", name, text)
	}
	return d, err
}

func moment(name, text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339, text); err != nil {
		err = fmt.Errorf("%s: want a time with its zone such as 2030-01-31T18:00:00Z, have %.60q", name, text)
	}
	return t, err
}

// checkFlags refuses options that no task of an input could have.
func checkFlags(opts *queue.Options) error {
	err := queue.ClientConfig{}.Check(tasks.AuditOrder{Order: "1"}, opts)
	if e, ok := errors.AsType[*queue.TaskError](err); ok {
		field := strings.TrimPrefix(e.Field, "policy: ")
		return fmt.Errorf("--%s: %s, have %q", strings.ReplaceAll(field, " ", "-"), e.Want, e.Value)
	}
	return err
}
