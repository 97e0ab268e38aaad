package lockpage_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A watch is a browser that watches a page.
type watch struct {
	reply  *http.Response
	reader *bufio.Scanner
}

func watchPage(ctx context.Context, t *testing.T, address string) watch {
	t.Helper()
	return watchBy(ctx, t, http.MethodGet, address)
}

func watchBy(ctx context.Context, t *testing.T, method, address string) watch {
	t.Helper()
	r := expect.Value(http.NewRequestWithContext(ctx, method, address, http.NoBody))(t)
	r.Header.Set("Accept", "text/event-stream")
	reply := expect.Value(http.DefaultClient.Do(r))(t)
	t.Cleanup(func() { _ = reply.Body.Close() })
	return watch{reply, bufio.NewScanner(reply.Body)}
}

// Who asks for the head of a page gets it, and watches nothing.
func TestHeadOfWatch(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(open(t, lockpage.Config{Source: newSource()}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w := watchBy(ctx, t, http.MethodHead, server.URL+"/locks")
	if kind := w.reply.Header.Get("Content-Type"); w.reply.StatusCode != http.StatusOK || kind != "text/html; charset=utf-8" {
		t.Errorf("want the head of a page, have status %d, %s", w.reply.StatusCode, kind)
	}
}

// event returns the next page, "" once there is none any more.
func (w watch) event() string {
	var page strings.Builder
	for w.reader.Scan() && w.reader.Text() != "" {
		page.WriteString(strings.TrimPrefix(w.reader.Text(), "data: ") + "\n")
	}
	return page.String()
}

// A page that somebody watches is sent again for longer than the server gives other requests, until the server shuts down.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := newSource(inspect.Lock{Resource: "order:1", State: inspect.Held, Holder: "two\r\nlines"})
	h := open(t, lockpage.Config{Source: s})
	server := httptest.NewUnstartedServer(h)
	server.Config.ReadTimeout, server.Config.WriteTimeout = time.Second, time.Second
	server.Start()
	t.Cleanup(server.Close)
	server.Config.RegisterOnShutdown(h.EndWatching)
	w := watchPage(t.Context(), t, server.URL+"/locks?sort=resource")
	if have := w.event(); !strings.Contains(have, "order:1") || !strings.HasSuffix(strings.TrimSpace(have), "</html>") {
		t.Fatalf("want the whole page with order:1, have %s", have)
	}
	begin := time.Now()
	for i := 0; time.Since(begin) < 2500*time.Millisecond; i++ {
		name := "stock:" + strings.Repeat("x", i+1)
		s.put(inspect.Lock{Resource: name, State: inspect.Held})
		for page := ""; !strings.Contains(page, name); {
			if page = w.event(); page == "" {
				t.Fatalf("want %s, have the end after %v", name, time.Since(begin))
			}
		}
	}
	expect.Is(t, "shutdown", server.Config.Shutdown(t.Context()), nil)
	for w.event() != "" { // what was on its way
	}
}

// A patient source shows each browser the list once, and again once it may: to make a hundred pages anew each second takes much.
type patient struct {
	*source

	may chan struct{}
}

type shownKey struct{}

func (s patient) Held(ctx context.Context) (inspect.List, error) {
	if shown, _ := ctx.Value(shownKey{}).(*atomic.Bool); shown.Swap(true) {
		select {
		case <-s.may:
		case <-ctx.Done():
			return inspect.List{}, ctx.Err()
		}
	}
	return s.source.Held(ctx)
}

// More than a hundred browsers would cost the worker too much. Who leaves makes room.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	const most = 100
	s := patient{newSource(), make(chan struct{})}
	h := open(t, lockpage.Config{Source: s})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), shownKey{}, new(atomic.Bool))))
	}))
	t.Cleanup(server.Close)
	ctx, leave := context.WithCancel(t.Context())
	for range most {
		if w := watchPage(ctx, t, server.URL+"/locks"); w.reply.StatusCode != http.StatusOK {
			t.Fatalf("want status 200, have %d", w.reply.StatusCode)
		}
	}
	if w := watchPage(t.Context(), t, server.URL+"/locks"); w.reply.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: want status 503, have %d", w.reply.StatusCode)
	}
	leave()
	close(s.may)
	expect.Eventually(t, "room", func() bool { return watchPage(t.Context(), t, server.URL+"/locks").reply.StatusCode == http.StatusOK })
}

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
