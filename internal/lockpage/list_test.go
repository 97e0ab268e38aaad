package lockpage_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
)

func TestListOfWhatStands(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: newSource()})
	wantTexts(t, h, "/locks", "!Lines that stand", "!is paused")
	s := newSource()
	s.paused = true
	s.leftOut = 3
	s.lines = []inspect.HeldLine{
		{Resource: "order:0", Task: inspect.Task{Queue: "default", ID: "a0"}, GoesOn: time.Now().Add(time.Minute), Error: "away"},
		{Resource: "order:1", Task: inspect.Task{Queue: "default", ID: "a1", Kind: "order:audit"}, Stopped: true, Waiting: 1234, Error: "no <such> order"},
		{Resource: "order:2", Task: inspect.Task{Queue: "default", ID: "a2"}, GoesOn: time.Now().Add(time.Minute), Error: "away"},
	}
	s.put(inspect.Lock{Resource: "order:3", State: inspect.Free, Lines: []inspect.HeldLine{
		{Task: inspect.Task{Queue: "default", ID: "a3"}, Stopped: true, Since: time.Now(), Error: "no such order"},
		{Task: inspect.Task{Queue: "low", ID: "a4"}, GoesOn: time.Now(), Error: "the database is away"},
	}})
	h = open(t, lockpage.Config{Source: s})
	wantTexts(t, h, "/locks/resource?name=order%3A3", "by a3 in default, which failed at ", "by a4 in low: “the database is away”")
	wantTexts(t, h, "/locks", "The queue default is paused.", "The first 3 of 6 resources whose first task has failed", "stopped</span> since", "1\u202f234",
		"no &lt;such&gt; order", `href="/locks/task?id=a1&amp;queue=default"`, `href="/locks/resource?name=order%3A2"`)
}
