package delay

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A clock waits for times to come, with a timer of the kernel. Go's timers are up to a millisecond
// late in a program with nothing else to do. Such a program waits for the network, and counts that
// time in milliseconds.
type clock struct {
	timer *os.File
	fd    int         // of timer, whose Fd would make its Read block a thread
	stop  func() bool // ends the watch of the context
}

// newClock returns a clock whose waits fail once ctx has ended.
func newClock(ctx context.Context) (*clock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	timer := os.NewFile(uintptr(fd), "timer")
	stop := context.AfterFunc(ctx, func() { _ = timer.SetReadDeadline(time.Now()) })
	return &clock{timer, fd, stop}, nil
}

// until returns at that time or a little later, never before.
func (c *clock) until(due time.Time) error {
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}
		if err := unix.TimerfdSettime(c.fd, 0, &once, nil); err != nil {
			return os.NewSyscallError("timerfd_settime", err)
		}
		var expirations [8]byte
		if _, err := c.timer.Read(expirations[:]); err != nil {
			return err
		}
	}
	return nil
}

func (c *clock) close() {
	c.stop()
	_ = c.timer.Close()
}
