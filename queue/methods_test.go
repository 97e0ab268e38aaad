package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sidingq/siding/queue"
)

// Types of tasks that look as if they had a resource, or a check.
type (
	byPointer    struct{ base }
	plural       struct{ base }
	withError    struct{ base }
	checkPointer struct{ base }
	base         struct{}
)

func (base) Kind() string                   { return "a:kind" }
func (*byPointer) Resource() string         { return "r" }
func (plural) Resources() []string          { return []string{"r"} }
func (withError) Resource() (string, error) { return "r", nil }
func (*checkPointer) Validate() error       { return errors.New("never valid") }
func handles[T queue.Task](s *queue.Server) {
	queue.Handle(s, func(context.Context, T) error { return nil })
}

func panicOf(handle func(*queue.Server)) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	handle(new(queue.Server))
	return ""
}

// A task that would run without its lock, or unchecked, as a method is not quite that of the interface, is refused.
func TestMethodsThatMissTheirInterface(t *testing.T) {
	t.Parallel()
	client := setup(t).client
	const signature = "want a method Resource that takes nothing and returns a string, such as queue.AllOf(a, b) for several"
	for _, tt := range []struct {
		task   queue.Task
		handle func(*queue.Server)
		want   string
	}{
		{byPointer{}, handles[byPointer], "want Resource as a method of queue_test.byPointer, have it of *queue_test.byPointer"},
		{checkPointer{}, handles[checkPointer], "want Validate as a method of queue_test.checkPointer, have it of *queue_test.checkPointer"},
		{plural{}, handles[plural], signature},
		{&plural{}, handles[*plural], signature},
		{withError{}, handles[withError], signature},
	} {
		if have, want := panicOf(tt.handle), fmt.Sprintf("queue: Handle: %T: %s", tt.task, tt.want); have != want {
			t.Errorf("Handle: want %q, have %q", want, have)
		}
		_, err := client.Enqueue(t.Context(), tt.task, nil)
		if want := fmt.Sprintf("%T: task: %s", tt.task, tt.want); err == nil || err.Error() != want {
			t.Errorf("Enqueue: want %q, have %v", want, err)
		}
	}
}
