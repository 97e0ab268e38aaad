//go:build !linux

package delay

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

// A clock waits for times to come.
type clock struct{ ctx context.Context } //nolint:containedctx // as on Linux, where a timer stands for it

// newClock returns a clock whose waits fail once ctx has ended.
func newClock(ctx context.Context) (*clock, error) { return &clock{ctx}, nil }

// until returns at that time or a little later, never before.
func (c *clock) until(due time.Time) error { return sleep.For(c.ctx, time.Until(due)) }

func (*clock) close() {}
