package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A deploy changes which locks tasks need, while many wait for those that they needed before. They drain as fast as
// without the change.
func TestDeployChangesTheLocks(t *testing.T) {
	t.Parallel()
	const tasks, takes = 60, 10 * time.Millisecond
	by := func(name func(j job) string) map[string]queue.ResourceFunc {
		return map[string]queue.ResourceFunc{job{}.Kind(): func(payload []byte) (string, error) {
			var j job
			err := json.Unmarshal(payload, &j)
			return name(j), err
		}}
	}
	guarded := queue.ServerConfig{Resources: resources()}
	elsewhere := func() queue.ServerConfig {
		return queue.ServerConfig{Resources: resources(), Store: locktest.NewMemory()}
	}
	for name, deploy := range map[string]struct{ before, after queue.ServerConfig }{
		"nothing":          {guarded, guarded},
		"another resource": {guarded, queue.ServerConfig{Resources: by(func(j job) string { return j.Res + ".new" })}},
		"several":          {guarded, queue.ServerConfig{Resources: by(func(j job) string { return fmt.Sprint(j.Res, ".", j.N%3) })}},
		"another prefix":   {guarded, queue.ServerConfig{Resources: resources(), Lock: lock.Config{Prefix: "new:"}}},
		"to a store":       {guarded, elsewhere()},
		"from a store":     {elsewhere(), guarded},
		"no guard":         {guarded, queue.ServerConfig{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b *bundle) {
				t.Helper()
				st := newStage(t)
				st.unfenced = true // they have other locks by then
				held := st.hold(0)
				old := &plain{guardConfig: deploy.before}
				old.serve(t, b, st)
				ids := []string{b.enqueuePlain(t, b.job(0))}
				within(t, patience, "the holder", held.entered)
				for n := 1; n < tasks; n++ {
					ids = append(ids, b.enqueuePlain(t, b.job(n)))
				}
				poll.Eventually(t, "all others waiting", func() bool { return b.stats(t).Retry == tasks-1 })
				old.server.Stop()
				held.open()
				old.stop(t)

				start := time.Now()
				p := &plain{guardConfig: deploy.after}
				p.start(t, b, handlerOf(func(ctx context.Context, j job) error {
					_ = sleep.For(ctx, takes)
					return nil
				}))
				t.Cleanup(func() { p.stop(t) })
				b.awaitGone(t, ids...)
				if took := time.Since(start); took > promised(tasks*takes+2*time.Second) {
					t.Errorf("want them done soon, have it take %v", took)
				}
				if info := b.stats(t); info.Failed != 0 || info.Processed != tasks {
					t.Errorf("want %d processed and none failed, have %+v", tasks, info)
				}
			})
		})
	}
}
