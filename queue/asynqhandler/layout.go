package asynqhandler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// newContext is asynq's: it puts into a context what asynq.GetTaskID and its like read there. message is an
// asynq/internal/base.TaskMessage. Unlike all else here, its signature cannot be checked at run time.
//
//go:linkname newContext github.com/hibiken/asynq/internal/context.New
func newContext(base context.Context, message unsafe.Pointer, deadline time.Time) (context.Context, context.CancelFunc)

// known begin the versions of asynq that have the newContext above. The tests must pass with a version
// before it comes here.
var known = []string{"v0.26."}

// A layout is where asynq's private fields are: their offsets, which newLayout has found by their names.
type layout struct {
	key     any          // of the values that asynq.GetTaskID and its like read
	message reflect.Type // asynq's TaskMessage
	broker  reflect.Type // the interface through which asynq's types call Redis

	messageID, messageQueue, messageRetry, messageRetried uintptr
	taskWriter                                            uintptr
	writerID, writerQueue, writerCtx, writerBroker        uintptr
	clientBroker                                          uintptr
}

// newLayout finds the layout of the asynq that the program is built with, which is of that version, and tries it.
func newLayout(version string) (*layout, error) {
	l := &layout{}
	err := l.find()
	if err == nil && !isKnown(version) {
		err = errors.New("is not a version that was tried")
	}
	if err == nil {
		err = l.try()
	}
	if err != nil {
		return nil, fmt.Errorf("asynqhandler: asynq %s: %w: use a version that this package knows (%sx)",
			version, err, strings.Join(known, "x, "))
	}
	return l, nil
}

// isKnown reports whether the signature of newContext is known to be as it is declared. A version that
// nobody can tell, such as that of a copy in the program's own tree, is trusted.
func isKnown(version string) bool {
	return version == "" || slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(version, k) })
}

// asynqVersion returns the version of asynq that the program is built with, "" if it cannot be told.
func asynqVersion() string {
	const module = "github.com/hibiken/asynq"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps { // a test has none
			if m.Path != module {
				continue
			}
			if m.Replace != nil {
				m = m.Replace // whose version is "" for a folder
			}
			return m.Version
		}
	}
	pc := reflect.ValueOf(asynq.NewServeMux).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	_, rest, _ := strings.Cut(file, module+"@")
	version, _, _ := strings.Cut(rest, "/")
	return version
}

// find fills in the layout. An error says what is not there.
func (l *layout) find() error {
	task, writer, client := reflect.TypeFor[asynq.Task](), reflect.TypeFor[asynq.ResultWriter](), reflect.TypeFor[asynq.Client]()
	field, ok := client.FieldByName("broker")
	if !ok || field.Type.Kind() != reflect.Interface {
		return errors.New("asynq.Client has no interface broker")
	}
	l.broker = field.Type
	enqueue, ok := l.broker.MethodByName("Enqueue")
	if !ok || enqueue.Type.NumIn() != 2 || enqueue.Type.In(1).Kind() != reflect.Pointer || enqueue.Type.In(1).Elem().Kind() != reflect.Struct {
		return fmt.Errorf("%v has no Enqueue(ctx, *TaskMessage)", l.broker)
	}
	l.message = enqueue.Type.In(1).Elem()
	text, number := reflect.TypeFor[string](), reflect.TypeFor[int]()
	for _, f := range []struct {
		offset *uintptr
		in     reflect.Type
		name   string
		want   reflect.Type
	}{
		{&l.messageID, l.message, "ID", text},
		{&l.messageQueue, l.message, "Queue", text},
		{&l.messageRetry, l.message, "Retry", number},
		{&l.messageRetried, l.message, "Retried", number},
		{&l.taskWriter, task, "w", reflect.PointerTo(writer)},
		{&l.writerID, writer, "id", text},
		{&l.writerQueue, writer, "qname", text},
		{&l.writerCtx, writer, "ctx", reflect.TypeFor[context.Context]()},
		{&l.writerBroker, writer, "broker", l.broker},
		{&l.clientBroker, client, "broker", l.broker},
	} {
		var err error
		if *f.offset, err = offsetOf(f.in, f.name, f.want); err != nil {
			return err
		}
	}
	spy := &keySpy{Context: context.Background()}
	asynq.GetTaskID(spy)
	if l.key = spy.key; l.key == nil {
		return errors.New("asynq.GetTaskID asks its context for nothing")
	}
	return nil
}

func offsetOf(in reflect.Type, name string, want reflect.Type) (uintptr, error) {
	field, ok := in.FieldByName(name)
	if !ok || len(field.Index) != 1 || field.Type != want {
		return 0, fmt.Errorf("%v has no field %s of type %v", in, name, want)
	}
	return field.Offset, nil
}

// A keySpy learns for which key a context is asked.
type keySpy struct {
	context.Context //nolint:containedctx // it is a context itself

	key any
}

func (s *keySpy) Value(key any) any {
	s.key = key
	return nil
}

// at returns a field of the struct that p points to.
func at[T any](p unsafe.Pointer, offset uintptr) *T { return (*T)(unsafe.Add(p, offset)) }

// context returns ctx with what asynq.GetTaskID and its like read.
func (l *layout) context(ctx context.Context, m *taskredis.Message) context.Context {
	return context.WithValue(ctx, l.key, l.metadata(m))
}

func (l *layout) metadata(m *taskredis.Message) any {
	message := reflect.New(l.message).UnsafePointer()
	*at[string](message, l.messageID) = m.ID
	*at[string](message, l.messageQueue) = m.Queue
	*at[int](message, l.messageRetry) = m.Retry
	*at[int](message, l.messageRetried) = m.Retried
	// The context has ended when it is made, as its deadline has passed. So nothing has to be ended, and no
	// context of the server gets another deadline or another cause.
	ctx, cancel := newContext(context.Background(), message, time.Time{})
	cancel()
	return ctx.Value(l.key)
}

// setWriter gives t a ResultWriter that calls client, until ctx ends.
func (l *layout) setWriter(ctx context.Context, t *asynq.Task, m *taskredis.Message, client *resultClient) {
	writer := &asynq.ResultWriter{}
	p := unsafe.Pointer(writer)
	*at[string](p, l.writerID) = m.ID
	*at[string](p, l.writerQueue) = m.Queue
	*at[context.Context](p, l.writerCtx) = ctx //nolint:fatcontext // it does not grow: the writer is new
	from := unsafe.Pointer(asynq.NewClientFromRedisClient(client))
	broker := reflect.NewAt(l.broker, unsafe.Add(from, l.clientBroker)).Elem()
	reflect.NewAt(l.broker, unsafe.Add(p, l.writerBroker)).Elem().Set(broker)
	*at[*asynq.ResultWriter](unsafe.Pointer(t), l.taskWriter) = writer
}

// try runs a task that does not exist, and checks what its handler sees.
func (l *layout) try() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	type seen struct {
		id, queue, writer, result string
		retry, retried            int
	}
	var have seen
	h := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		have.id, _ = asynq.GetTaskID(ctx)
		have.queue, _ = asynq.GetQueueName(ctx)
		have.retry, _ = asynq.GetMaxRetry(ctx)
		have.retried, _ = asynq.GetRetryCount(ctx)
		have.writer = t.ResultWriter().TaskID()
		_, err := t.ResultWriter().Write([]byte("result"))
		return err
	})
	m := &taskredis.Message{Type: "type", ID: "id", Queue: "queue", Retry: 3, Retried: 2}
	err = l.process(context.Background(), h, m, func(_ context.Context, result []byte) error {
		have.result = string(result)
		return nil
	})
	if want := (seen{"id", "queue", "id", "result", 3, 2}); err == nil && have != want {
		err = fmt.Errorf("a handler sees %+v instead of %+v", have, want)
	}
	return err
}
