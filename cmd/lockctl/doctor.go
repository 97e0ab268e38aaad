package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
)

// A status says how bad a finding is.
type status string

const (
	ok      status = "ok"
	warning status = "warning"
	faulty  status = "fault"
)

// A check is one line of the diagnosis.
type check struct {
	Check  string `json:"check"`
	Status status `json:"status"`
	Found  string `json:"found"`
	Means  string `json:"means,omitempty"`
	Do     string `json:"do,omitempty"`
}

// A diagnosis is what the doctor has found.
type diagnosis struct {
	Status  status           `json:"status"` // the worst of the checks
	Checks  []check          `json:"checks"`
	Servers []inspect.Server `json:"servers"`
	Queues  []inspect.Queue  `json:"queues"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look for faults of Redis, the servers, the queues and the locks",
		Long: `Look for faults of the whole installation, and say what each means and what to do.

It checks that Redis answers soon, takes writes, keeps its data, evicts nothing, is new
enough, and has the time of this machine; that every queue has servers, and that all of
them take locks and have the same settings; that a server looks after the queues; and it
looks for tasks of dead workers, for resources that are free and not served, for lines
that a failed task holds, and for locks that never end. It changes nothing, and
takes some seconds if it has to look twice.`,
		Example: `  lockctl doctor
  lockctl doctor --json`,
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd.Context(), a.doctor) },
	}
}

func (a *app) doctor(ctx context.Context, c *connection) error {
	d, err := a.diagnose(ctx, c)
	if err != nil {
		return c.failed(ctx, err)
	}
	if err := a.print(d, func() string { return a.diagnosisText(d) }); err != nil {
		return err
	}
	if d.Status == faulty {
		return cli.Exit(exitTrouble, nil)
	}
	return nil
}

// An examination collects checks. All its checks see the same answers.
type examination struct {
	*app
	*connection

	servers []inspect.Server
	queues  []inspect.Queue
	locks   []inspect.Lock
	leftOut int // contended locks
	orphans []inspect.Orphan
	refuses bool // Redis refuses writes
	checks  []check
}

// add adds a finding: what it means, and what to do.
func (x *examination) add(s status, name, found, means, do string) {
	x.checks = append(x.checks, check{Check: name, Status: s, Found: found, Means: means, Do: do})
}

// unless adds that a check is all right, unless it has found something.
func (x *examination) unless(name, found string) {
	if !slices.ContainsFunc(x.checks, func(c check) bool { return c.Check == name }) {
		x.add(ok, name, found, "", "")
	}
}

// diagnose reads everything and checks it. Its error is that of a Redis that does not answer.
func (a *app) diagnose(ctx context.Context, c *connection) (diagnosis, error) {
	x := &examination{app: a, connection: c}
	for _, step := range []func(context.Context) error{
		x.read, x.redis, x.traits, x.fleet, x.agreed, x.elected, x.tasks, x.contended, x.held,
	} {
		if err := step(ctx); err != nil {
			return diagnosis{}, err
		}
	}
	d := diagnosis{Status: ok, Checks: x.checks, Servers: x.servers, Queues: x.queues}
	for _, c := range x.checks {
		if c.Status == faulty || c.Status == warning && d.Status == ok {
			d.Status = c.Status
		}
	}
	return d, nil
}

// read asks for what several checks need.
func (x *examination) read(ctx context.Context) (err error) {
	if x.servers, err = x.Servers(ctx); err != nil {
		return err
	}
	if x.queues, err = x.Queues(ctx); err != nil {
		return err
	}
	if x.orphans, err = x.Orphans(ctx); err != nil {
		return err
	}
	list, err := x.Held(ctx)
	x.locks, x.leftOut = list.Locks, list.LeftOut
	return err
}

// mostAlike is how many findings of one kind people are shown.
const mostAlike = 10

// shorten leaves out findings of a kind of which there are many.
func shorten(checks []check) (kept []check) {
	type kind struct {
		check  string
		status status
	}
	seen, more := make(map[kind]int), make(map[kind]int) // where kept says how many more there are
	for _, c := range checks {
		k := kind{c.Check, c.Status}
		switch seen[k]++; {
		case seen[k] == mostAlike+1:
			more[k] = len(kept)
			fallthrough
		case seen[k] <= mostAlike:
			kept = append(kept, c)
		}
	}
	for k, n := range more {
		kept[n] = check{Check: k.check, Status: k.status, Found: fmt.Sprintf("and %d more; --json has all", seen[k]-mostAlike)}
	}
	return kept
}

// diagnosisText is for people.
func (a *app) diagnosisText(d diagnosis) string {
	var b strings.Builder
	counts := make(map[status]int)
	for _, c := range d.Checks {
		counts[c.Status]++
	}
	for _, c := range shorten(d.Checks) {
		fmt.Fprintf(&b, "%-7s  %s: %s\n", c.Status, c.Check, cli.Plain(c.Found))
		for _, line := range [][2]string{{"means", c.Means}, {"do", c.Do}} {
			if line[1] != "" {
				fmt.Fprintf(&b, "         %-5s  %s\n", line[0], cli.Plain(line[1]))
			}
		}
	}
	if len(d.Servers) > 0 {
		b.WriteString("\n" + serverTable(d.Servers).text())
	}
	fmt.Fprintf(&b, "\n%s, %s\n", count(counts[faulty], "fault"), count(counts[warning], "warning"))
	return b.String()
}

// serverTable shows the servers side by side.
func serverTable(servers []inspect.Server) *table {
	t := newTable(left("SERVER"), right("PID"), left("GUARDED"), left("QUEUES"), left("VERSIONS"))
	for _, s := range servers {
		guarded := "yes"
		switch {
		case len(s.Unguarded) > 0:
			guarded = "NO"
		case !s.Guarded:
			guarded = "no"
		}
		t.add(s.Host, fmt.Sprint(s.PID), guarded, strings.Join(s.Queues, ", "), cmp.Or(s.Versions, "-")) // it tells if it takes locks
	}
	return t
}
