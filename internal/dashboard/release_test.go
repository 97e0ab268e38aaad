package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// The button of the Locks pages takes a lock from its holder. The log and the page say who wanted it.
func TestReleaseFromTheLocksPages(t *testing.T) {
	t.Parallel()
	const resource, reason = "order:536365", "its worker hangs"
	opts, rdb := start(t)
	locker := expect.Value(lock.New(lock.Redis(rdb), lock.Config{}))(t)
	t.Cleanup(locker.Close)
	held := expect.Value(locker.Acquire(t.Context(), resource, &lock.Options{Holder: "a migration"}))(t)
	t.Cleanup(func() { _ = held.Release(context.Background()) })

	var log bytes.Buffer
	h := open(t, dashboard.Config{Redis: opts, Username: "alice", Password: "sesame", AnyHost: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	form := url.Values{"name": {resource}, "reason": {reason}, "sure": {"1"}, "seen": {fmt.Sprintf("held %d %q", held.Fence(), "a migration")}}
	reply := ask(t, h, http.MethodPost, "/locks/resource", basic("alice", "sesame"), header("Sec-Fetch-Site", "same-origin"),
		header("Content-Type", "application/x-www-form-urlencoded"), func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(form.Encode())) })
	expect.Need(t, reply.Code == http.StatusSeeOther, "want a redirect, have %d and %s", reply.Code, reply.Body)
	expect.Is(t, "renewal", held.Renew(t.Context()), lock.ErrLost)
	want := `resource=order:536365 holder="a migration" by=alice reason="its worker hangs"`
	expect.That(t, strings.Contains(log.String(), want), "log: want %s, have %s", want, &log)
	page := ask(t, h, http.MethodGet, reply.Header().Get("Location"), basic("alice", "sesame")).Body.String()
	for _, want := range []string{"alice", reason, "a migration"} {
		expect.That(t, strings.Contains(page, want), "page: want %q in it, have %s", want, page)
	}
}
