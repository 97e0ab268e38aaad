package hook_test

import (
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
)

// A result is kept only while its attempt lasts. Later it must not replace that of another attempt.
// Nor may a result make a hash of its own, which would take the id for ever.
func TestResults(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, f *fleet) {
		t.Helper()
		f.queue += "}:t:x" // as awkward as names get
		first, second := f.worker(t), f.worker(t)
		const id = "y}:t:z"
		f.enqueue(t, asynq.TaskID(id))
		write := func(a *run, text string, ok bool) {
			t.Helper()
			if n, err := a.task.ResultWriter().Write([]byte(text)); (err == nil) != ok || ok && n != len(text) {
				t.Errorf("write %q: want it kept: %v, have %d, %v", text, ok, n, err)
			}
		}
		result := func(want string) {
			t.Helper()
			if have := f.check(t).task(id)["result"]; have != want {
				t.Errorf("want result %q, have %q", want, have)
			}
		}
		late := first.take(t, id)
		write(late, "one", true)
		result("one")
		f.left(t, id, 15)
		if moved, err := asynqredis.Recover(t.Context(), f.rdb, f.orphans(t)[id], "crash"); !moved || err != nil {
			t.Fatalf("want it requeued, have %v, %v", moved, err)
		}
		write(late, "two", false)
		a := second.take(t, id)
		write(late, "three", false)
		write(a, "four", true)
		result("four")
		a.mustEnd(t, nil)
		write(late, "five", false)
		if n := f.rdb.Exists(t.Context(), f.prefix()+"t:"+id).Val(); n != 0 {
			t.Error("want no hash made for a task that is gone")
		}
		f.enqueue(t, asynq.TaskID(id)) // the id is free
	})
}
