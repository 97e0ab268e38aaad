package queue_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/queue"
)

// A task whose id was used before came when a worker took it, not when that one did.
func TestReplaceWithAnIdThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		replace := queue.Options{TaskID: "x", Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		var began time.Time
		for n := range 2 {
			g := st.hold(0)
			holder := b.enqueue(t, b.job(0))
			within(t, patience, "the holder", g.entered)
			began = time.Now()
			b.enqueueWaiter(t, n+1, 1, replace)
			if n == 1 {
				break
			}
			g.open()
			b.awaitGone(t, holder, "x")
		}
		equals := b.rdb.Keys(t.Context(), "{lock:"+b.resource+"}:equal:*").Val()
		if len(equals) != 1 {
			t.Fatalf("want one registered, have %q", equals)
		}
		came, _, _ := strings.Cut(b.rdb.Get(t.Context(), equals[0]).Val(), " ")
		if us, err := strconv.ParseInt(came, 10, 64); err != nil || time.UnixMicro(us).Before(began) {
			t.Errorf("want a time since %v, have %v, %v", began, time.UnixMicro(us), err)
		}
	})
}
