package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
)

// A releasing says which lock to take from its holder.
type releasing struct {
	deed

	resource string
	fence    int64 // of the holder that is meant; 0 for the only one
}

// A released is the outcome of a release.
type released struct {
	Resource   string           `json:"resource"`
	Holder     string           `json:"holder"`
	By         string           `json:"by"`
	Reason     string           `json:"reason"`
	FreeWithin inspect.Duration `json:"free_within_seconds"`
	Waiting    int              `json:"waiting"`
}

func (a *app) releaseCommand() *cobra.Command {
	var r releasing
	cmd := &cobra.Command{
		Use:   "release RESOURCE --reason TEXT",
		Short: "Take a lock from its holder",
		Long: `Take a lock from its holder, after a question. The context of the holder's work ends at
its next renewal, within a third of lock.ttl. The lock goes to the next waiter once
the holder has returned, or when the lease has expired, and never before. So there are
never two holders. The next fencing token is higher. A task that has lost its lock this
way runs again, behind those who wait, and uses no retry.

A program on the plain protocol (STATE foreign) does not learn that it has lost its
lock. The lock goes to the next waiter at once: make sure that the program does not
work on the resource any more.

A lock with a limit may have several holders. Then --fence says which of them loses it.

Redis keeps the reason and your name for a week, and show prints them. The log of the
holder's server and the last error of the task have them, too.`,
		Example: `  lockctl release order:536365 --reason 'the worker hangs in a call to the bank'
  lockctl release order:536365 --reason 'drill' --by alice --yes`,
		Args: cli.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.resource = args[0]
			if err := r.check(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *connection) error { return a.release(ctx, c, r) })
		},
	}
	r.addAskFlags(cmd, "who releases the lock")
	cmd.Flags().Int64Var(&r.fence, "fence", 0, "the `fence` of the holder that is meant, if the lock has several; show lists them")
	return cmd
}

func (r *releasing) check() error {
	if err := store.CheckResource(r.resource); err != nil {
		return err
	}
	if r.fence < 0 {
		return fmt.Errorf("--fence: want 0 or more, have %d", r.fence)
	}
	return r.deed.check()
}

func (a *app) release(ctx context.Context, c *connection, r releasing) error {
	lock, _, err := c.Show(ctx, r.resource, 1, 0)
	if err != nil {
		return c.failed(ctx, err)
	}
	switch {
	case lock.Elsewhere:
		return cli.Fault(fmt.Errorf("%s: the lock is in an external store: release it there", r.resource))
	case lock.State == inspect.Free || lock.State == inspect.Reserved:
		hint := a.meant(ctx, c, lock)
		if hint != "" {
			hint = "; " + hint
		}
		return cli.Fault(fmt.Errorf("%s: nobody holds the lock%s", r.resource, hint))
	}
	if lock, err = r.of(lock); err != nil {
		return err
	}
	if lock.State == inspect.Revoked {
		return a.releasedBefore(lock)
	}
	text := a.lockText(lock)
	if lock.State == inspect.Foreign {
		text += "\nAnother program holds this lock. It will not learn that it has lost the lock, and the next\n" +
			"waiter gets the lock at once. Make sure that the program does not work on the resource.\n"
	}
	if err := a.ask(ctx, r.deed, lock.Resource, text, "Take this lock from its holder?"); err != nil {
		return err
	}
	if lock.State == inspect.Foreign && !r.yes {
		if err := c.checkForeign(ctx, lock); err != nil {
			return err
		}
	}
	return a.revoke(ctx, c, r, lock)
}

// releasedBefore says who has taken a lock from its holder, who has not returned yet.
func (a *app) releasedBefore(l inspect.Lock) error {
	before := "the lock was released before"
	if r := l.Revoked; r != nil && r.Holder == l.Holder {
		before = fmt.Sprintf("%s has released the lock before, %s: %s", cli.Plain(r.By), a.clock(r.At), cli.Plain(r.Reason))
	}
	return unchanged("%s: %s; it is free once its holder returns, and after %s at the latest", l.Resource, before, l.Left)
}

// checkForeign returns an error if the other program that held the lock when it was shown holds it no more.
// Such a holder has no fence by which the script could tell it from a later one.
func (c *connection) checkForeign(ctx context.Context, shown inspect.Lock) error {
	now, _, err := c.Show(ctx, shown.Resource, 1, 0)
	if err != nil {
		return c.failed(ctx, err)
	}
	if now.State != inspect.Foreign {
		return unchanged("%s: the lock has another holder by now, or none", shown.Resource)
	}
	return nil
}

// of returns the lock as that of the holder that is meant. The error says why nothing changes.
func (r releasing) of(l inspect.Lock) (inspect.Lock, error) {
	var held []inspect.Permit
	var list []string
	for _, p := range l.Permits {
		if p.State != inspect.Reserved {
			held = append(held, p)
			list = append(list, fmt.Sprintf("\n  --fence %d  %s", p.Fence, cli.Plain(p.Holder)))
		}
	}
	if len(held) == 0 || l.State == inspect.Foreign {
		if r.fence > 0 && (r.fence != l.Fence || l.State == inspect.Foreign) {
			return l, unchanged("%s: no holder has the fence %d", r.resource, r.fence)
		}
		return l, nil
	}
	if r.fence == 0 && len(held) > 1 {
		return l, unchanged("%s has %d holders: say by --fence which one is meant:%s", r.resource, len(held), strings.Join(list, ""))
	}
	for _, p := range held {
		if r.fence == 0 || p.Fence == r.fence {
			l.State, l.Holder, l.Task, l.Worker, l.Gone, l.Since, l.Left, l.Fence = p.State, p.Holder, p.Task, p.Worker, p.Gone, p.Since, p.Left, p.Fence
			return l, nil
		}
	}
	return l, unchanged("%s: no holder has the fence %d, but these:%s", r.resource, r.fence, strings.Join(list, ""))
}

// revoke takes the lock from the holder that was shown, and from no later one.
func (a *app) revoke(ctx context.Context, c *connection, r releasing, l inspect.Lock) error {
	fence := l.Fence
	if l.State == inspect.Foreign {
		fence = 0 // it has none
	}
	// An interrupt must not hide whether the lock was released.
	outcome, err := queue.Revoke(context.WithoutCancel(ctx), c.rdb, queue.Revocation{
		Resource: r.resource, Prefix: c.settings.Queue.Lock.Prefix, Fence: fence, By: r.by, Reason: r.reason,
	})
	for _, refused := range []error{queue.ErrNotHeld, queue.ErrOtherHolder, queue.ErrSeveralHolders, queue.ErrExternalStore, queue.ErrRevoked} {
		if errors.Is(err, refused) {
			return unchanged("%w", err)
		}
	}
	if err != nil {
		return c.failed(ctx, err)
	}
	a.recorder(c).WarnContext(ctx, "an operator has released a lock", r.record("resource", r.resource, "holder", outcome.Holder)...)
	done := released{
		Resource: r.resource, Holder: outcome.Holder, By: r.by, Reason: r.reason, FreeWithin: inspect.Duration(outcome.FreeWithin), Waiting: l.Waiting,
	}
	return a.print(done, done.text)
}

// text is for people.
func (r released) text() string {
	text := fmt.Sprintf("%s: taken from %s by %s.\n", cli.Plain(r.Resource), cli.Plain(r.Holder), cli.Plain(r.By))
	switch {
	case r.FreeWithin == 0 && r.Waiting == 0:
		return text + "The lock is free.\n"
	case r.FreeWithin == 0:
		return text + "The next waiter has the lock.\n"
	case r.Waiting == 0:
		return text + fmt.Sprintf("The context of the holder ends at its next renewal. The lock is free once the holder returns, and after %s at the latest.\n", r.FreeWithin)
	}
	return text + fmt.Sprintf("The context of the holder ends at its next renewal. The next waiter gets the lock once the holder returns, and after %s at the latest.\n", r.FreeWithin)
}
