package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// Start begins to take tasks, and returns. Start first asks Redis for each queue whether tasks could be taken, as
// [Server.Ready] does. If Redis refuses, or the server has no handler, or a server of another release of
// Siding that keeps locks in another way is alive on one of its queues, or one whose locks are elsewhere
// ([ErrOtherLocks]), Start starts nothing, and returns why. Then you may call Start again. Start does not ask for a
// lock. On a server that was started or shut down, or that another call starts just now, Start changes nothing and
// returns an error; after a Shutdown the error matches asynq.ErrServerClosed.
func (s *Server) Start(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.starting = false
	}()
	return s.start(ctx)
}

// claim keeps other calls from starting the server. It returns an error if one has done so before.
func (s *Server) claim(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isShutDown():
		return errShutDown
	case s.engine != nil:
		return errors.New("queue: the server was started before")
	case s.starting:
		return errors.New("queue: another call starts the server just now")
	}
	s.starting = true
	return nil
}

var errShutDown error = closedError{}

// A closedError refuses the use of a server that was shut down. It matches asynq's error.
type closedError struct{}

func (closedError) Error() string        { return "queue: the server was shut down before: make another one" }
func (closedError) Is(target error) bool { return target == asynq.ErrServerClosed }

// start starts a server that the caller has claimed.
func (s *Server) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.background, cancel)() //nolint:contextcheck // a Shutdown ends it, too
	defer func() {
		if err != nil && s.isShutDown() { // meanwhile, which closes the client
			err = errShutDown
		}
	}()
	if err := s.probe(ctx); err != nil {
		return err
	}
	s.limitsRead(ctx, s.loadLimits(ctx)) // one that cannot be read keeps no task away
	run, err := s.handler()              //nolint:contextcheck // what it looks for has none
	if err != nil {
		return err
	}
	if s.cfg.OnMaxWait != nil {
		if s.onMaxWait, err = asynqhandler.New(s.rdb, asynq.HandlerFunc(s.cfg.OnMaxWait)); err != nil { //nolint:contextcheck // likewise
			return fmt.Errorf("queue: start: %w", err)
		}
	}
	cfg, err := s.engineConfig(run) //nolint:contextcheck // likewise
	if err != nil {
		return err
	}
	server := engine.New(cfg)
	err = server.Start(ctx, s.rules())
	if other, ok := errors.AsType[*engine.OtherLocksError](err); ok {
		return fmt.Errorf("%w: %w; so tasks of one resource could run at once: give all servers the same, or stop the others first "+
			"(one that was killed is listed for 10 s more)", ErrOtherLocks, other)
	}
	if err != nil {
		return fmt.Errorf("queue: start: %w", err)
	}
	if !s.keep(server) {
		_ = server.Shutdown(ctx) // which has ended
		return errShutDown
	}
	return nil
}

// keep keeps an engine that has begun. It returns false if the server was shut down meanwhile.
func (s *Server) keep(server *engine.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isShutDown() {
		return false
	}
	s.engine = server
	close(s.started)
	s.work.Go(func() { s.followLimits(s.background) })
	return true
}

// Run starts the server, as [Server.Start] does, and drains it, as [Server.Shutdown] does, once ctx
// has ended. Unlike asynq's, Run handles no signals: make ctx by signal.NotifyContext. Run returns
// nil if all tasks have ended by then, if ctx ends before the server has started, or once somebody else
// has called Shutdown. Draining takes at most ShutdownTimeout of asynq.Config and
// [ServerConfig.Overrun] together; the process should then end. On a server that was started or shut
// down, or that another call starts just now, Run changes nothing and returns an error. If the server
// cannot be started otherwise, Run closes its connection.
func (s *Server) Run(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	err := s.start(ctx) // Shutdown ends the claim
	switch {
	case err == nil:
		select {
		case <-ctx.Done():
		case <-s.background.Done():
		}
	case ctx.Err() != nil, s.isShutDown(): // it was to end before it had begun
		err = nil
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), plus(s.cfg.Asynq.ShutdownTimeout, s.cfg.Overrun))
	defer cancel()
	return errors.Join(err, s.Shutdown(limit))
}
