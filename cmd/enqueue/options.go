package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// taskOptions are a task's options as text: the flags of one task, or the
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

// addFlags makes a flag of each option but the retries, which the command adds:
// there the flag's being given matters.
func (o *taskOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Queue, "queue", "", `name of the queue (default "default")`)
	f.StringVar(&o.ID, "id", "", "id of the task; refused if the queue has a task of this id (default random)")
	f.StringVar(&o.Delay, "delay", "", "run it this `duration` from now, such as 90s")
	f.StringVar(&o.At, "at", "", "run it at this `time`, such as 2030-01-31T18:00:00Z")
	f.StringVar(&o.Unique, "unique", "", "refuse it while an equal task is unfinished, for this `duration` at least")
	f.StringVar(&o.Timeout, "timeout", "", "`duration` after which an attempt is ended (default 30m, unless there is a deadline)")
	f.StringVar(&o.Deadline, "deadline", "", "`time` at which it is given up, also while it waits")
	f.StringVar(&o.Retention, "retention", "", "`duration` for which it is kept after its success (default 0)")
}

// options reads the texts. Errors name the option; what remains to be checked,
// [queue.Check] does.
func (o taskOptions) options() (*queue.Options, error) {
	opts := &queue.Options{Queue: o.Queue, TaskID: o.ID}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
	}{
		{"delay", o.Delay, &opts.Delay},
		{"unique", o.Unique, &opts.UniqueFor},
		{"timeout", o.Timeout, &opts.Timeout},
		{"retention", o.Retention, &opts.Retention},
	} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil {
			return nil, fmt.Errorf("%s: want a duration such as 90s or 1h30m, have %q", d.name, clip(d.text))
		}
	}
	for _, t := range []struct {
		name, text string
		into       *time.Time
	}{
		{"at", o.At, &opts.At},
		{"deadline", o.Deadline, &opts.Deadline},
	} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.into, err = time.Parse(time.RFC3339, t.text); err != nil {
			return nil, fmt.Errorf("%s: want a time with its zone such as 2030-01-31T18:00:00Z, have %q", t.name, clip(t.text))
		}
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

// checkFlags refuses options that every task of an input would be refused for.
func checkFlags(opts *queue.Options) error {
	err := queue.Check(tasks.AuditOrder{Order: "1"}, opts)
	if e, ok := errors.AsType[*queue.TaskError](err); ok {
		return fmt.Errorf("--%s: %s, have %q", e.Field, e.Want, e.Value)
	}
	return err
}

// clip shortens a value for an error text.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
