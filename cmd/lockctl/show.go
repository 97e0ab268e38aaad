package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/store"
)

// A shown is a lock with some of those who wait for it.
type shown struct {
	Lock    inspect.Lock     `json:"lock"`
	Waiters []inspect.Waiter `json:"waiters"`
}

func (a *app) showCommand() *cobra.Command {
	var from, number int
	cmd := &cobra.Command{
		Use:   "show RESOURCE",
		Short: "Show a lock, its holder and who waits for it",
		Long: `Show a lock, its holder, and who waits for it, in the order in which they get it.
Tasks of paused queues keep their places, and let others go before them.
A lock with a limit may have several holders, each with a fencing token of its own.
The first 1,000 waiters can be listed.

Redis knows no lock that nobody holds and nobody waits for. So a misspelt resource
looks like a free one.`,
		Example: `  lockctl show order:536365
  lockctl show order:536365 --from 101 --count 50`,
		Args: cli.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case from < 1 || from > inspect.MostListed:
				return fmt.Errorf("--from: want 1 to %d, have %d", inspect.MostListed, from)
			case number < 0 || number > inspect.MostListed:
				return fmt.Errorf("--count: want 0 to %d, have %d", inspect.MostListed, number)
			}
			if err := store.CheckResource(args[0]); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.show(ctx, c, args[0], from, number) })
		},
	}
	cmd.Flags().IntVar(&from, "from", 1, "begin at this `position`")
	cmd.Flags().IntVar(&number, "count", 20, "show at most `n` waiters")
	return cmd
}

func (a *app) show(ctx context.Context, c *connection, resource string, from, number int) error {
	lock, waiters, err := c.Show(ctx, resource, from, number)
	if err != nil {
		return c.failed(ctx, err)
	}
	if waiters == nil {
		waiters = []inspect.Waiter{}
	}
	if hint := a.meant(ctx, c, lock); hint != "" {
		a.say("lockctl: %s\n", hint)
	}
	return a.print(shown{lock, waiters}, func() string { return a.lockText(lock) + a.permitText(lock) + a.waiterText(lock, waiters, from) })
}

// meant says what else may have been meant by the name of a lock that nobody has or waits for; "" if nothing comes to mind.
func (a *app) meant(ctx context.Context, c *connection, l inspect.Lock) string {
	if l.State != inspect.Free || l.Waiting > 0 || l.Revoked != nil {
		return ""
	}
	if strings.HasSuffix(l.Resource, "*") {
		return fmt.Sprintf("%s is taken as a name, not as a pattern: `lockctl list --filter %s` lists the locks that fit", cli.Plain(l.Resource), inspect.ShellWord(l.Resource))
	}
	if e, err := c.Why(ctx, "", l.Resource); err == nil && e.Task.ID == l.Resource {
		return fmt.Sprintf("%s is a task: `lockctl why %s` says what it does", cli.Plain(l.Resource), inspect.ShellArg(l.Resource))
	}
	return ""
}

// lockText describes a lock.
func (a *app) lockText(l inspect.Lock) string {
	var f fields
	f.add("resource", l.Resource)
	f.add("state", stateText(l))
	if l.State != inspect.Free {
		f.add("holder", holderOf(l))
	}
	if l.Worker != nil {
		f.add("worker", workerOf(l))
	}
	f.add("since", a.clock(l.Since))
	if l.State != inspect.Free {
		f.add("lease left", leftOf(l))
	}
	if l.Fence > 0 {
		f.add("last fence", fmt.Sprint(l.Fence))
	}
	if r := l.Revoked; r != nil {
		f.add("released by", fmt.Sprintf("%s, %s", r.By, a.clock(r.At)))
		f.add("taken from", r.Holder)
		f.add("reason", r.Reason)
	}
	f.add("limit", a.limitOf(l.Limit))
	f.add("waiting", waitingText(l))
	for _, line := range l.Lines {
		f.add("line", a.lineText(line))
	}
	f.add("not served", a.unserved(l))
	return f.text()
}

// lineText says by which task a line is held, or stopped, and until when.
func (a *app) lineText(l inspect.HeldLine) string {
	how, next := "held", "it goes on "+a.goesOn(l)
	if l.Stopped {
		how, next = "stopped", fmt.Sprintf("`lockctl run %s` or `lockctl archive --reason TEXT %[1]s` sets it going", inspect.ShellArg(l.Task.ID))
	}
	by := taskText(&l.Task) + " in " + l.Task.Queue
	if !l.Since.IsZero() {
		by += ", which failed " + a.clock(l.Since)
	}
	return fmt.Sprintf("%s by %s: %s; %s", how, by, l.Error, next)
}

// unserved says for how long a lock has been free for those who wait; "" if they are served.
func (a *app) unserved(l inspect.Lock) string {
	if l.Unserved == 0 {
		return ""
	}
	return fmt.Sprintf("for %s, ready since %s", l.Unserved, a.moment(l.Ready))
}

// limitOf describes the limit that an operator has set; "" for none.
func (a *app) limitOf(l *inspect.Limit) string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("%s, by %s for %s, %s: %s", limitText(*l), l.By, l.Pattern, a.clock(l.At), l.Reason)
	if l.Holders == 0 {
		text += fmt.Sprintf("; `lockctl limit unset %s` resumes it", inspect.ShellArg(l.Pattern))
	}
	return text
}

// permitText lists the holders of a lock, and those for whom it is reserved, if there are several.
func (a *app) permitText(l inspect.Lock) string {
	if len(l.Permits) < 2 {
		return ""
	}
	t := newTable(left("HOLDER"), left("STATE"), right("SINCE"), right("LEFT"), right("FENCE"))
	for _, p := range l.Permits {
		name, fence := p.Holder, fmt.Sprint(p.Fence)
		if p.State == inspect.Reserved {
			name, fence = "a goroutine", "-"
		}
		t.add(name, string(p.State), a.ago(p.Since), p.Left.String(), fence)
	}
	return "\n" + t.text()
}

// stateText says what the state of a lock means.
func stateText(l inspect.Lock) string {
	text := map[inspect.LockState]string{
		inspect.Held:     "held",
		inspect.Revoked:  "revoked: it was taken from its holder, who stops at the next renewal",
		inspect.Reserved: "reserved for a goroutine that waits",
		inspect.Foreign:  "held by another program",
		inspect.Free:     "free",
	}[l.State]
	if l.Elsewhere {
		text += "; the lock itself is in an external store, and this is the order of its tasks"
	}
	return text
}

// waitingText sums up who waits for a lock.
func waitingText(l inspect.Lock) string {
	if l.Waiting == 0 {
		return "nobody"
	}
	text := fmt.Sprintf("%s, the first for %s", count(l.Waiting, "waiter"), l.OldestWait)
	if l.Paused > 0 {
		text += fmt.Sprintf("; %d in paused queues", l.Paused)
	}
	return text
}

// waiterText lists the waiters that were read, from a position on.
func (a *app) waiterText(l inspect.Lock, waiters []inspect.Waiter, from int) string {
	if len(waiters) == 0 {
		if l.Waiting > 0 && from > 1 {
			return fmt.Sprintf("\nNobody waits from position %d on.\n", from)
		}
		return ""
	}
	t := newTable(right("POSITION"), left("WAITER"), left("QUEUE"), left("WAITS SINCE"), right("WAITED"))
	for _, w := range waiters {
		name, queue := "a goroutine", "-"
		if w.Task != nil {
			name, queue = taskText(w.Task), w.Task.Queue
		}
		position := fmt.Sprint(w.Position)
		if w.Paused {
			position += " (paused)"
		}
		t.add(position, name, queue, a.moment(w.Since), w.Waited.String())
	}
	text := "\n" + t.text()
	if next := from + len(waiters); next <= l.Waiting {
		text += fmt.Sprintf("and %d more", l.Waiting-next+1)
		if next <= inspect.MostListed {
			text += fmt.Sprintf(", from position %d on: --from %[1]d", next)
		}
		text += "\n"
	}
	return text
}
