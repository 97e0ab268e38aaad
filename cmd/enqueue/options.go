package main

import (
	"cmp"
	"errors"
	"fmt"
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
	Unique    string `json:"unique"`
	Retries   *int   `json:"retries"` // nil when not given
	Timeout   string `json:"timeout"`
	Deadline  string `json:"deadline"`
	Retention string `json:"retention"`
}

// addFlags makes a flag of each option but the retries: their flag counts only
// when it is given.
func (o *taskOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Queue, "queue", "", `name of the queue (default "default")`)
	f.StringVar(&o.ID, "id", "", "id of the task; refused if the queue has a task of this id (default random)")
	f.StringVar(&o.Delay, "delay", "", "run it after this `duration`, such as 90s")
	f.StringVar(&o.At, "at", "", "run it at this `time`, such as 2030-01-31T18:00:00Z")
	f.StringVar(&o.Unique, "unique", "", "refuse it while an equal task is unfinished, for this `duration` at least")
	f.StringVar(&o.Timeout, "timeout", "", "`duration` after which an attempt ends (default 30m, unless there is a deadline)")
	f.StringVar(&o.Deadline, "deadline", "", "`time` after which it does not run, also if it waits")
	f.StringVar(&o.Retention, "retention", "", "keep it for this `duration` after its success (default 0)")
}

// options reads the texts. Errors name the option; [queue.Check] checks the rest.
func (o taskOptions) options() (*queue.Options, error) {
	opts := &queue.Options{Queue: o.Queue, TaskID: o.ID}
	var errs [6]error
	opts.Delay, errs[0] = duration("delay", o.Delay)
	opts.UniqueFor, errs[1] = duration("unique", o.Unique)
	opts.Timeout, errs[2] = duration("timeout", o.Timeout)
	opts.Retention, errs[3] = duration("retention", o.Retention)
	opts.At, errs[4] = moment("at", o.At)
	opts.Deadline, errs[5] = moment("deadline", o.Deadline)
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
	err := queue.Check(tasks.AuditOrder{Order: "1"}, opts)
	if e, ok := errors.AsType[*queue.TaskError](err); ok {
		return fmt.Errorf("--%s: %s, have %q", e.Field, e.Want, e.Value)
	}
	return err
}
