package docs_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/queue"
)

// A fleet has one of everything, so that no metric is left out.
type fleet struct{}

func (fleet) Held(context.Context) (inspect.List, error) {
	return inspect.List{Locks: []inspect.Lock{{Resource: "order:1", State: inspect.Held}}}, nil
}

func (fleet) Queues(context.Context) ([]inspect.Queue, error) {
	return []inspect.Queue{{Name: "default"}}, nil
}
func (fleet) Servers(context.Context) ([]inspect.Server, error) { return nil, nil }

// metricsPage has the metrics as a worker reports them, and the instruments of module queueotel.
func metricsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Metrics\n" + head)
	b.WriteString("[The guide](../guides/metrics.md) says how to scrape, what the labels mean, and which alerts there\n" +
		"are. A name that ends in `_seconds` is in seconds. All others are counts, but for `siding_redis_up`\n" +
		"and `siding_queue_paused`: these are 1 or 0. The gauges, but for `siding_redis_up` and\n" +
		"`siding_tasks_running`, are [of the whole fleet](../guides/metrics.md#of-the-whole-fleet).\n")
	b.WriteString("\n## At `/metrics` of a worker\n\n")
	ofWorker := prometheusRows(t)
	table(&b, ofWorker...)
	b.WriteString("\n## From module queueotel\n\n")
	b.WriteString("Each instrument counts or measures the same as a metric above. [The\n" +
		"guide](../guides/tracing.md#metrics) has the attributes. `Telemetry.Observe` feeds the counters and\n" +
		"histograms, `Telemetry.Watch` the gauges.\n")
	b.WriteString("\n")
	table(&b, otelRows(t, ofWorker)...)
	return b.String()
}

// prometheusRows scrapes a worker to which everything has happened.
func prometheusRows(t *testing.T) [][]string {
	t.Helper()
	m := metrics.New()
	m.Watch(fleet{}, slog.New(slog.DiscardHandler))
	for kind := queue.EventParked; kind <= queue.EventWaitedTooLong; kind++ {
		m.Observe(queue.Event{Kind: kind, TaskKind: "order:audit", Resource: "order:1", Queue: "default", Via: queue.ViaHandOff, HandOff: time.Second})
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	scrape := w.Body.String()

	rows := [][]string{{"metric", "type", "labels", "meaning"}}
	for _, found := range regexp.MustCompile(`(?m)^# HELP (siding_\w+) (.*)\n# TYPE \w+ (\w+)\n\w+(?:\{(.*)\})? `).FindAllStringSubmatch(scrape, -1) {
		var labels []string
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[4], -1) {
			if label[1] != "le" { // the histogram's own
				labels = append(labels, code(label[1]))
			}
		}
		meaning, ofFleet := strings.CutSuffix(found[2], " Of the whole fleet: use max, not sum, over workers.")
		if want := found[3] == "gauge" && found[1] != "siding_redis_up" && found[1] != "siding_tasks_running"; ofFleet != want {
			t.Errorf("%s: want its help to say that it is of the whole fleet: %t, have %t", found[1], want, ofFleet)
		}
		rows = append(rows, []string{code(found[1]), found[3], strings.Join(labels, ", "), meaning})
	}
	// A metric that nothing above has brought about would be missing.
	for _, file := range named(t, func(name string) bool { return path.Dir(name) == "internal/metrics" && isCode(name) }) {
		for name := range listed(read(t, file), `"(siding_\w+)"`) {
			if !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == code(name) }) {
				t.Errorf("%s: want %s reported", file, name)
			}
		}
	}
	return rows
}

// instruments has the types that the calls of queueotel make.
var instruments = map[string]string{
	"counter": "counter", "seconds": "histogram", "gauge": "gauge",
	"Int64UpDownCounter": "up-down counter", "Float64ObservableGauge": "gauge",
}

// otelRows finds the calls that make an instrument, and for each the metric of a worker that is the same. The module is
// another one, so they are read and not run.
func otelRows(t *testing.T, ofWorker [][]string) [][]string {
	t.Helper()
	rows := [][]string{{"instrument", "type", "unit", "same as"}}
	for _, name := range named(t, func(name string) bool { return path.Dir(name) == "queue/queueotel" && isCode(name) }) {
		ast.Inspect(parse(t, name), func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			made := instruments[nameOf(call.Fun)]
			texts := textsIn(call)
			if made == "" || len(texts) < 2 || !strings.HasPrefix(texts[0], "siding.") {
				return true
			}
			unit := "s"
			if len(texts) > 2 {
				unit = texts[1]
			}
			same := code(sameAs(texts[0], made, unit))
			if !slices.ContainsFunc(ofWorker, func(row []string) bool { return row[0] == same }) {
				t.Errorf("%s: want the metric %s of a worker, which is the same as %s", name, same, texts[0])
			}
			rows = append(rows, []string{code(texts[0]), made, code(unit), same})
			return true
		})
	}
	if want := 15; len(rows) < want {
		t.Errorf("want %d instruments or more, have %d", want, len(rows))
	}
	slices.SortFunc(rows[1:], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

// sameAs returns the name that a worker's metric has which is the same as an instrument.
func sameAs(instrument, made, unit string) string {
	name := strings.ReplaceAll(instrument, ".", "_")
	switch {
	case instrument == "siding.task.wait.oldest":
		return "siding_oldest_wait_seconds"
	case made == "counter":
		return name + "_total"
	case unit == "s":
		return name + "_seconds"
	default:
		return name
	}
}

// nameOf returns the last word of what is called.
func nameOf(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	default:
		return fmt.Sprint(fun)
	}
}

// textsIn returns the texts of the arguments of a call, and of the calls in them.
func textsIn(call *ast.CallExpr) []string {
	var texts []string
	for _, arg := range call.Args {
		switch arg := arg.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(arg.Value); err == nil && arg.Kind == token.STRING {
				texts = append(texts, text)
			}
		case *ast.CallExpr:
			texts = append(texts, textsIn(arg)...)
		}
	}
	return texts
}
