package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
)

// The files that docs/guides/metrics.md offers.
var (
	grafanaFile = filepath.Join("..", "deploy", "grafana", "siding.json")
	rulesFolder = filepath.Join("..", "deploy", "prometheus")
)

const rulesFile = "siding.rules.yml"

// A metricsTestbed has a worker whose tasks contend. One of them waits for a lock that the test
// holds.
type metricsTestbed struct {
	*testbed

	base string
	held *lock.Lease
}

// The resource that the test holds, and those that its tasks have otherwise.
const heldOrder, freeOrder = "secret-held", "secret-free"

func newMetricsTestbed(t *testing.T) *metricsTestbed {
	t.Helper()
	s := &metricsTestbed{testbed: newTestbed(t)}
	s.held = expect.Value(newLocker(t, s.redis.Client(t)).Acquire(t.Context(), "order:"+heldOrder, &lock.Options{Holder: "the test"}))(t)
	w := s.startWorker(t, "--work", "20ms")
	s.base = w.base(t)
	s.enqueueAudits(t, 5)
	expect.Eventually(t, "one task waiting, and the others done", func() bool {
		info := s.queueInfo(t)
		return info.ProcessedTotal >= 5 && info.Retry == 1 && info.Active+info.Pending == 0
	})
	return s
}

// enqueueAudits enqueues tasks that contend for one order, and one for the order that the test holds.
func (s *metricsTestbed) enqueueAudits(t *testing.T, n int) {
	t.Helper()
	var lines strings.Builder
	for i := range n + 1 {
		order := freeOrder
		if i == 0 {
			order = heldOrder
		}
		fmt.Fprintf(&lines, `{"kind":"order:audit","payload":{"order":%q}}`+"\n", order)
	}
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	expect.OK(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	expect.Value(s.enqueue(t.Context(), "stream", file))(t)
}

// base returns the URL of a worker.
func (w *worker) base(t *testing.T) (base string) {
	t.Helper()
	started := regexp.MustCompile(`msg="worker started".*http=(http://[^/\s]+)`)
	expect.Eventually(t, "the worker started", func() bool {
		found := started.FindStringSubmatch(w.Stderr.String())
		if found != nil {
			base = found[1]
		}
		return found != nil
	})
	return base
}

// fetch returns a page, which must be there.
func fetch(t *testing.T, address string) string {
	t.Helper()
	text := expect.Value(page(t.Context(), address))(t)
	return text
}

func page(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, reply.Status, text)
	}
	return string(text), err
}

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	return string(expect.Value(os.ReadFile(path))(t))
}

// expressions returns all queries of the Grafana dashboard, by the panel. Grafana's own variables have
// values that suit a short test.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, RefID string }
		}
	}
	expect.OK(t, json.Unmarshal([]byte(read(t, grafanaFile)), &board))
	variables := strings.NewReplacer("$job", ".*", "$__rate_interval", "5m", "$__range", "5m")
	all := make(map[string]string)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = variables.Replace(target.Expr)
		}
	}
	expect.Need(t, len(all) >= 20, "want the queries of a dashboard, have %d", len(all))
	return all
}

// A worker reports what the dashboard and the alerts ask for, and names no resource.
func TestMetricsOfAWorker(t *testing.T) {
	t.Parallel()
	s := newMetricsTestbed(t)
	scrape := fetch(t, s.base+"/metrics")

	reported := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(?:\{|\s)`).FindAllStringSubmatch(scrape, -1) {
		reported[m[1]] = true
	}
	named := regexp.MustCompile(`\bsiding_\w+`)
	asked := read(t, filepath.Join(rulesFolder, rulesFile))
	for _, expr := range expressions(t) {
		asked += "\n" + expr
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named.FindAllString(asked, -1)))) {
		expect.That(t, reported[name], "want %s reported", name)
	}
	for _, want := range []string{
		"siding_redis_up 1",
		`siding_tasks_waiting{class="order"} 1`,
		`siding_locks_held{class="order",state="held"} 1`,
		`siding_queue_tasks{queue="default",state="waiting"} 1`, `siding_queue_tasks{queue="default",state="retrying"} 0`,
		`siding_locks_acquired_total{class="order"} 5`,
		`siding_tasks_running{kind="order:audit"} 0`,
		`siding_locks_lost_total{kind="stock:deduct"} 0`, // a kind of which no task came
		`siding_servers 1`, `siding_servers_unguarded 0`,
	} {
		expect.That(t, strings.Contains(scrape, "\n"+want+"\n"), "want %s, have\n%s", want, lines(scrape, "siding_"))
	}
	tool, err := proc.Look("prometheus", "promtool")
	if err == nil {
		lint := exec.CommandContext(t.Context(), tool, "check", "metrics")
		lint.Stdin = strings.NewReader(scrape)
		if out, err := lint.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics: %v: %s", err, out)
		}
	}
	expect.That(t, !strings.Contains(scrape, "secret"), "want no name of a resource, have %s", lines(scrape, "secret"))
}

// lines returns the lines of text that contain part, without comments.
func lines(text, part string) string {
	var some []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) && !strings.HasPrefix(line, "#") {
			some = append(some, line)
		}
	}
	return strings.Join(some, "")
}

// Prometheus accepts the rules. Each alert fires, and does not, where its test says.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", rulesFile}, {"test", "rules", "siding.rules_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), proc.Find(t, "prometheus", "promtool"), args...)
		cmd.Dir = rulesFolder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v: %s", args, err, out)
		}
	}
}

// A Prometheus that scrapes a worker has an answer to each query of the dashboard, and can evaluate
// all alerts.
func TestPrometheusAnswers(t *testing.T) {
	verify.Long(t)
	t.Parallel()
	s := newMetricsTestbed(t)
	began := time.Now()
	address := startPrometheus(t, strings.TrimPrefix(s.base, "http://"))
	expect.Eventually(t, "two scrapes", func() bool {
		return len(query(t, address, "count_over_time(siding_redis_up[1m]) > 1", began)) == 1
	})
	s.enqueueAudits(t, 20)
	expect.OK(t, s.held.Release(t.Context()))
	for name, expr := range expressions(t) {
		expect.Eventually(t, name+": "+expr, func() bool { return len(query(t, address, expr, began)) > 0 })
	}
	rules := fetch(t, address+"/api/v1/rules")
	expect.That(t, !strings.Contains(rules, `"health":"err"`) && strings.Contains(rules, "SidingNothingRuns"), "want all alerts evaluated, have %s", rules)
}

// query returns the series that Prometheus answers for any time since then. A task may wait for less
// time than two questions are apart.
func query(t *testing.T, address, expr string, since time.Time) (result []any) {
	t.Helper()
	var answer struct {
		Data struct{ Result []any }
	}
	span := url.Values{"query": {expr}, "start": {since.Format(time.RFC3339)}, "end": {time.Now().Format(time.RFC3339)}, "step": {"1s"}}
	text := fetch(t, address+"/api/v1/query_range?"+span.Encode())
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return answer.Data.Result
}

// startPrometheus runs a Prometheus with the alerts, which scrapes target.
func startPrometheus(t *testing.T, target string) (address string) {
	t.Helper()
	program := proc.Find(t, "prometheus", "prometheus")
	var server *proc.Server
	err := proc.OnFreePorts(func() error {
		listen, err := proc.FreeAddr(t.Context())
		if err != nil {
			return err
		}
		if server, err = proc.New(program); err != nil {
			return err
		}
		address = "http://" + listen
		config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n  - job_name: shop\n    static_configs: [{targets: [%q]}]\n", rulesFile, target)
		if err := errors.Join(
			os.WriteFile(filepath.Join(server.Dir, "prometheus.yml"), []byte(config), 0o600),
			os.WriteFile(filepath.Join(server.Dir, rulesFile), []byte(read(t, filepath.Join(rulesFolder, rulesFile))), 0o600),
		); err != nil {
			return err
		}
		server.Args = []string{"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + listen}
		server.Ready = func(ctx context.Context) error {
			_, err := page(ctx, address+"/-/ready")
			return err
		}
		if err := server.Start(t.Context()); err != nil {
			server.Stop()
			return err
		}
		return nil
	})
	proc.ForTest(t, server, err)
	return address
}
