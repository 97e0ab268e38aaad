package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

// Package lock exports these errors, and says what they mean.
var (
	ErrBusy    = errors.New("lock: busy")
	ErrReentry = errors.New("lock: this context holds the lock already; set Options.Reentrant to take it again")
	ErrClosed  = errors.New("lock: closed")
	ErrNoFence = errors.New("lock: no fence")
)

// ErrWaited is the cause of a context that bounds a wait, and alone says why that has ended.
var ErrWaited = errors.New("the wait is over")

// errMaxHold is why a lease ended that was held for too long.
var errMaxHold = fmt.Errorf("%w: held for the longest time allowed", store.ErrLost)

// errOver is why a lease ended that is not renewed.
var errOver = fmt.Errorf("%w: its TTL is over, and it is not renewed", store.ErrLost)

// errTooLate says that the answer of the store came after the lease's deadline.
var errTooLate = errors.New("the answer came after the lease's deadline")

// A BusyError has the fields of lock.BusyError, which says what they mean.
type BusyError struct {
	Resource  string
	Holder    string
	Since     time.Time
	Remaining time.Duration
	Foreign   bool
	Split     bool
	Position  int
	Holders   int
}

// Error names the resource, the holder and the time left.
func (e *BusyError) Error() string {
	return fmt.Sprintf("lock %s is held by %s (%.1f s left)", e.Resource, e.Holder, e.Remaining.Seconds())
}

// Is reports whether target is [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// NewBusy returns the error for a lock that is busy. rule is that of the request, nil for none.
func NewBusy(resource string, r store.Result, rule *store.Rule) *BusyError {
	busy := &BusyError{Resource: resource, Remaining: max(0, r.Left), Split: r.Split, Position: r.Position, Holders: r.Holders}
	switch {
	case r.Reserved:
		busy.Holder = store.NextHolder
	case r.Split && r.Holder == "":
		busy.Holder = "nobody yet, as several asked at once"
	case strings.HasPrefix(r.Holder, tokenPrefix):
		busy.Holder, busy.Since = holderOf(r.Holder), r.Since
	case r.Holder == "" && rule != nil && rule.Limit == 0:
		busy.Holder = "nobody, as " + rule.PausedBy()
		busy.Remaining = pausedFor
	case r.Holder == "" && r.Later > 0:
		busy.Holder = "nobody, as its rates allow no start yet"
	case r.Holder == "" && rule != nil:
		busy.Holder = "nobody any more" // the last permit has expired just now
	default:
		busy.Holder, busy.Foreign = store.ForeignHolder, true
	}
	if r.Later > 0 { // else others may start before any permit expires
		busy.Remaining = r.Later
	}
	if r.Holders > 1 {
		busy.Holder, busy.Since = fmt.Sprintf("%s, and %d more", busy.Holder, r.Holders-1), time.Time{}
	}
	if r.Holders > 0 && rule != nil && rule.Limit == 0 {
		busy.Holder, busy.Since = busy.Holder+", and "+rule.PausedBy(), time.Time{}
	}
	return busy
}

// pausedFor is how long a lock that is paused is taken to stay so.
const pausedFor = time.Second

// A passer is an error that knows whether it may pass.
type passer interface {
	error
	Passing() bool
}

// Passing reports whether err may pass by itself. Errors of the network may, and some answers of
// Redis. An error of another Store may have a method Passing() bool that says so.
func Passing(err error) bool {
	if says, ok := errors.AsType[passer](err); ok {
		return says.Passing()
	}
	if redisreply.Answered(err) {
		return redisreply.Transient(err)
	}
	return true
}

// EndOf returns why ctx has ended: its error and, if it was given another one, the cause. The
// result is nil if ctx has not ended.
func EndOf(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		// A call to the store may notice the deadline a moment before ctx does. ctx notices much
		// later if its deadline has no monotonic reading, and the wall clock has stepped past it.
		const moment = 100 * time.Millisecond
		timer := time.NewTimer(moment)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			return context.DeadlineExceeded
		}
	}
	err := ctx.Err()
	if err == nil {
		return nil // it may end just now, and then has a cause
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) || errors.Is(cause, ErrWaited) {
		return cause
	}
	return store.Because(err, cause)
}
