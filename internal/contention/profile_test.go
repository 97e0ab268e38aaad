package contention_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/contention"
	"github.com/sidingq/siding/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wait returns the event of a task that has waited.
func wait(kind, resource string, d time.Duration) queue.Event {
	return queue.Event{Kind: queue.EventAcquired, TaskKind: kind, Resource: resource, Waited: d, Via: queue.ViaHandOff}
}

// fetch asks for the profile.
func fetch(t *testing.T, p *contention.Profile, query string) *httptest.ResponseRecorder {
	t.Helper()
	reply := httptest.NewRecorder()
	p.ServeHTTP(reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/siding/contention"+query, http.NoBody))
	return reply
}

// parse reads a profile, which must be valid, and returns its samples: the frames from the bottom, waits
// and delay.
func parse(t *testing.T, reply *httptest.ResponseRecorder) (*profile.Profile, map[string][2]int64) {
	t.Helper()
	have, err := profile.ParseData(reply.Body.Bytes())
	if err != nil {
		t.Fatalf("%d %s: %v", reply.Code, reply.Body, err)
	}
	if err := have.CheckValid(); err != nil {
		t.Error(err)
	}
	samples := make(map[string][2]int64)
	for _, s := range have.Sample {
		var frames []string
		for _, l := range s.Location {
			frames = append([]string{l.Line[0].Function.Name}, frames...)
		}
		samples[strings.Join(frames, " < ")] = [2]int64{s.Value[0], s.Value[1]}
	}
	return have, samples
}

// A profile sums up the waits of one class and kind, and has no name of a resource.
func TestProfile(t *testing.T) {
	t.Parallel()
	p := contention.New()
	for i, e := range []queue.Event{
		wait("order:audit", "order:536365", time.Second),
		wait("order:audit", "order:536366", 2*time.Second),
		wait("order:ship", "order:536365", time.Minute),
		wait("stock:deduct", "85123A", time.Millisecond),
		{Kind: queue.EventAcquired, TaskKind: "order:ship", Resource: "order:536365"}, // has not waited
		{Kind: queue.EventParked, TaskKind: "order:ship", Resource: "order:536365", Parked: 1},
	} {
		e.TaskID = fmt.Sprintf("task-%d", i)
		p.Observe(e)
	}
	have, samples := parse(t, fetch(t, p, ""))
	for frames, want := range map[string][2]int64{
		"class order < order:audit waits":  {2, 3e9},
		"class order < order:ship waits":   {1, 60e9},
		"class other < stock:deduct waits": {1, 1e6},
	} {
		if samples[frames] != want {
			t.Errorf("%s: want %v, have %v", frames, want, samples[frames])
		}
	}
	if len(samples) != 3 {
		t.Errorf("want 3 samples, have %v", samples)
	}
	for _, s := range have.Sample {
		if len(s.Label["kind"]) != 1 || len(s.Label["class"]) != 1 {
			t.Errorf("want a kind and a class, have %v", s.Label)
		}
	}
	if text := have.String(); regexp.MustCompile(`53636|85123A|77ab09|web-|task-`).MatchString(text) {
		t.Errorf("want no name, id and host, have %s", text)
	}
}

// go tool pprof shows who waits, and for what.
func TestReadByPprof(t *testing.T) {
	t.Parallel()
	p := contention.New()
	p.Observe(wait("order:audit", "order:536365", 90*time.Second))
	p.Observe(wait("order:refund", "order:536365", 10*time.Second))
	file := filepath.Join(t.TempDir(), "contention.pb.gz")
	if err := os.WriteFile(file, fetch(t, p, "").Body.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var errors bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", "-cum", file)
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errors.String())
	}
	have := regexp.MustCompile(` +`).ReplaceAllString(string(out), " ")
	for _, want := range []string{
		"Type: delay", "100s, 100% of 100s total",
		" 0 0% 0% 100s 100% class order",
		" 90s 90.00% 90.00% 90s 90.00% order:audit waits", " 10s 10.00% 100% 10s 10.00% order:refund waits",
	} {
		if !strings.Contains(have, want) {
			t.Errorf("want %q, have\n%s", want, have)
		}
	}
}

func TestSecondsAreChecked(t *testing.T) {
	t.Parallel()
	for _, seconds := range []string{"0", "-1", "3601", "x", "1.5", "99999999999999999999"} {
		if have := fetch(t, contention.New(), "?seconds="+seconds); have.Code != http.StatusBadRequest || !strings.Contains(have.Body.String(), "want 1 to 3600") {
			t.Errorf("%s: have %d %s", seconds, have.Code, have.Body)
		}
	}
}

// The limits that a server has for requests do not end one that collects waits.
func TestSecondsBeyondTheLimitsOfTheServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(contention.New())
	server.Config.ReadTimeout, server.Config.WriteTimeout = 500*time.Millisecond, 700*time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"?seconds=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if have, err := profile.Parse(reply.Body); err != nil || have.DurationNanos < 1e9 {
		t.Errorf("want a profile of 1 s, have %v, %v", have, err)
	}
}

// The profile stays small, whatever waits.
func TestProfileIsBounded(t *testing.T) {
	t.Parallel()
	p := contention.New()
	const waits = 20_000
	for i := range waits {
		p.Observe(wait(fmt.Sprintf("kind:%d", i), fmt.Sprintf("class%d:1", i%10_000), time.Second))
	}
	_, samples := parse(t, fetch(t, p, ""))
	var sum int64
	for _, values := range samples {
		sum += values[0]
	}
	if len(samples) != 1001 || sum != waits || samples["class other < other waits"][0] != waits-1000 {
		t.Errorf("want 1001 samples of %d waits, have %d of %d", waits, len(samples), sum)
	}
}

// A kind that is no UTF-8 is no reason to have no profile.
func TestKindThatIsNoText(t *testing.T) {
	t.Parallel()
	p := contention.New()
	for range 3 {
		p.Observe(wait("a\xffb", "order:1", time.Second))
	}
	if _, samples := parse(t, fetch(t, p, "")); samples["class order < a?b waits"][0] != 3 {
		t.Errorf("want 3 waits, have %v", samples)
	}
}
