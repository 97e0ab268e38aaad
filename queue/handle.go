package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/queue/asynqhandler"
)

// Handle registers fn as the handler of the tasks of type T. Handle panics if s or fn is nil, T is
// an interface, a method of T is not quite that of [Guarded] or [Validator], T's kind is empty or has a handler, or the
// server was started. A task whose payload does not decode into T, or is refused by T's Validate, is archived at once.
//
// If T is [Guarded], fn runs under the lock of the resource that the payload names. That also holds
// if a plain asynq client enqueued the task, or if its payload was changed since.
func Handle[T Task](s *Server, fn func(context.Context, T) error) {
	var zero T
	of := reflect.TypeFor[T]()
	if of.Kind() == reflect.Interface {
		panic("queue: Handle: " + of.String() + " is an interface: want the type of the tasks of one kind")
	}
	if wrong := wrongMethod(of); wrong != "" {
		panic("queue: Handle: " + of.String() + ": " + wrong)
	}
	kind := zero.Kind()
	switch {
	case s == nil:
		panic("queue: Handle: " + kind + ": the server is nil")
	case fn == nil:
		panic("queue: Handle: " + kind + ": the handler is nil")
	}
	run := func(ctx context.Context, task *asynq.Task) error {
		t, err := decode[T](kind, task.Payload())
		if err != nil {
			return Permanent(err)
		}
		if g, ok := any(t).(Guarded); ok {
			resource, err := checkResource(kind, g.Resource())
			if err != nil {
				return Permanent(err)
			}
			if resource != InfoFrom(ctx).Resource {
				return &engine.OtherResourceError{Resource: resource}
			}
		}
		return fn(context.WithValue(ctx, engine.TaskKey{}, task), t)
	}
	if _, ok := any(zero).(Guarded); !ok {
		s.handle(kind, run, nil)
		return
	}
	s.handle(kind, run, func(payload []byte) string {
		t, err := decode[T](kind, payload)
		g, ok := any(t).(Guarded)
		if err != nil || !ok {
			return "" // the handler says what is wrong
		}
		return g.Resource()
	})
}

// decode returns the task that a payload holds, and checks it.
func decode[T Task](kind string, payload []byte) (t T, err error) {
	if string(bytes.TrimSpace(payload)) == null { // which decodes into any type, and changes nothing: the handler would get an empty task
		return t, fmt.Errorf("%s: payload: %s", kind, notNull)
	}
	if err := json.Unmarshal(payload, &t); err != nil {
		typed, isTyped := errors.AsType[*json.UnmarshalTypeError](err)
		_, isSyntax := errors.AsType[*json.SyntaxError](err)
		switch { // without the values, which are not for logs
		case isTyped:
			typed.Value, _, _ = strings.Cut(typed.Value, " ")
		case !isSyntax:
			err = fmt.Errorf("it does not decode into %T (%T)", t, err)
		}
		return t, fmt.Errorf("%s: payload: %w", kind, err)
	}
	if v, ok := any(t).(Validator); ok {
		err = v.Validate()
	}
	return t, err
}

// handle registers a handler, and what says of a payload which resource its task needs; nil for nothing.
func (s *Server) handle(kind string, r asynq.HandlerFunc, resource func(payload []byte) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.TrimSpace(kind) == "":
		panic(fmt.Sprintf("queue: Handle: want the kind of a task, have %q", kind))
	case s.starting || s.engine != nil || s.isShutDown():
		panic("queue: Handle: " + kind + ": the server has been started")
	case s.routes[kind] != nil:
		panic("queue: Handle: " + kind + " has a handler already")
	}
	s.routes[kind] = r
	if resource != nil {
		s.typed[kind] = resource
	}
}

// Use wraps the handlers of all tasks, under the lock, as the Use of asynq.ServeMux does: the first
// middleware is the outermost. It runs twice for a task whose payload names another resource than its
// header. Use panics if the server was started. [Server.Start] refuses a nil middleware.
func (s *Server) Use(middleware ...asynq.MiddlewareFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting || s.engine != nil || s.isShutDown() {
		panic("queue: Use: the server has been started")
	}
	s.middleware = append(s.middleware, middleware...)
}

// Kinds returns the kinds of tasks for which [Handle] has registered a handler, sorted.
func (s *Server) Kinds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.routes))
}

// handler returns what runs the tasks of all kinds.
func (s *Server) handler() (engine.Handler, error) {
	if i := slices.IndexFunc(s.middleware, func(wrap asynq.MiddlewareFunc) bool { return wrap == nil }); i >= 0 {
		return nil, fmt.Errorf("queue: use: middleware %d: want a function, have nil", i+1)
	}
	if len(s.routes) == 0 && s.cfg.Handler == nil {
		return nil, errors.New("queue: start: want a handler, have none: call Handle, or set Handler of ServerConfig")
	}
	for _, kind := range slices.Sorted(maps.Keys(s.typed)) {
		if s.cfg.Resources[kind] != nil { // the two might name different resources, and the task then asks for each in turn
			return nil, fmt.Errorf("queue: resources: %s: want none, as the task of its handler by Handle is Guarded and names its resource", kind)
		}
	}
	handler := asynq.Handler(asynq.HandlerFunc(s.dispatch))
	for _, wrap := range slices.Backward(s.middleware) {
		handler = wrap(handler)
	}
	run, err := asynqhandler.New(s.rdb, handler)
	if err != nil {
		return nil, fmt.Errorf("queue: start: %w", err)
	}
	return run, nil
}

// dispatch runs the handler of a task.
func (s *Server) dispatch(ctx context.Context, t *asynq.Task) error {
	r, ok := s.routes[t.Type()]
	switch {
	case !ok && s.cfg.Handler != nil:
		r = s.cfg.Handler.ProcessTask
	case !ok:
		// The error is not Permanent: in a rolling upgrade a newer worker may know the kind.
		return fmt.Errorf("queue: no handler for %q; this server has %s", t.Type(), strings.Join(s.Kinds(), ", "))
	}
	start := time.Now()
	err := r(ctx, t)
	if err == nil && s.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		info := InfoFrom(ctx)
		s.cfg.Logger.DebugContext(ctx, "task done", "task_id", info.ID, "task_kind", info.Kind, "queue", info.Queue, "resource", info.Resource, "took_s", time.Since(start).Seconds())
	}
	return err
}
