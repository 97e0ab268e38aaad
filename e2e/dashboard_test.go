package e2e

import (
	"fmt"
	"testing"

	"github.com/sidingq/siding/internal/testenv/browsertest"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

var desktop = browsertest.Window{Width: 1280, Height: 900}

// A person follows a waiting task from asynq's dashboard to its resource, and from there to the
// holder.
func TestLocksPages(t *testing.T) {
	t.Parallel()
	s := newTestbed(t)
	address := expect.Value(proc.FreeAddr(t.Context()))(t)
	s.env = append(s.env, "SIDING_HTTP_ADDRESS="+address)
	s.startWorker(t, "--work", "2m")
	for i := range 3 {
		expect.Value(s.enqueue(t.Context(), "task", "order:audit", "--payload", `{"order":"536365"}`, "--id", fmt.Sprintf("audit-%d", i)))(t)
		expect.Eventually(t, "one task at work and the others waiting", func() bool {
			info := s.queueInfo(t)
			return info.Active == 1 && info.Retry == i
		})
	}
	page := browsertest.Open(t, "http://"+address+"/dashboard/queues/default/tasks/audit-2", desktop)
	page.Click("#siding-task")
	page.AwaitText("Task audit-2")
	page.AwaitText("Position 2, for ")
	page.Click(".facts a[href^='/locks/resource']")
	page.AwaitText("Resource order:536365")
	page.AwaitText("2 waiters, in order")
	page.Click(".facts .holder a")
	page.AwaitText("Task audit-0")
	page.AwaitText("running")
	page.Go("http://" + address + "/locks")
	page.AwaitText("1 lock, by longest wait")
	page.AwaitText("Waiting 2")

	page.Click("[data-row]")
	page.Click("summary")
	page.Click("#reason")
	page.Type("it hangs")
	page.Click("input[type=checkbox]")
	page.Click("button.danger")
	page.AwaitText("by a visitor from 127.0.0.1")
	page.AwaitText("“it hangs”")
	page.Await(`document.querySelector(".facts .holder").textContent.includes("audit-1")`)
	if have := page.Errors(); len(have) != 0 {
		t.Errorf("want no errors, have %q", have)
	}
}
