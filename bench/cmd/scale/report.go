package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/sidingq/siding/bench/internal/report"
)

// A result is what was measured of one case. Times are milliseconds, CPU times
// of Redis microseconds.
type result struct {
	Tasks     int    `json:"tasks"`
	Resources int    `json:"resources"`
	TTL       string `json:"ttl"`

	EnqueueRate float64 `json:"enqueued_per_second"`
	EnqueueCPU  float64 `json:"redis_us_per_enqueue"`
	ParkRate    float64 `json:"parked_per_second"`
	ParkCPU     float64 `json:"redis_us_per_park"`
	Bytes       float64 `json:"bytes_beyond_asynq"`

	Start      float64 `json:"start_ms"`
	Stop       float64 `json:"stop_ms"`
	PageQueues float64 `json:"page_queues_ms"`
	PageQueue  float64 `json:"page_queue_ms"`
	PageFirst  float64 `json:"page_first_tasks_ms"`
	PageLast   float64 `json:"page_last_tasks_ms"`

	WatchLoad float64 `json:"redis_cpus_meanwhile"`

	List       float64 `json:"list_ms"`
	Show       float64 `json:"show_ms"`
	Why        float64 `json:"why_ms"`
	Top        float64 `json:"top_ms"`
	LocksPage  float64 `json:"page_locks_ms"`
	AloneP50   float64 `json:"hand_off_p50_ms_while_nobody_looks"`
	AloneP99   float64 `json:"hand_off_p99_ms_while_nobody_looks"`
	AloneMean  float64 `json:"hand_off_mean_ms_while_nobody_looks"`
	LookedP50  float64 `json:"hand_off_p50_ms_while_somebody_looks"`
	LookedP99  float64 `json:"hand_off_p99_ms_while_somebody_looks"`
	LookedMean float64 `json:"hand_off_mean_ms_while_somebody_looks"`

	FewP50     float64 `json:"hand_off_p50_ms_of_few"`
	FewP99     float64 `json:"hand_off_p99_ms_of_few"`
	P50        float64 `json:"hand_off_p50_ms"`
	P99        float64 `json:"hand_off_p99_ms"`
	HandOffs   int     `json:"hand_offs"`
	HandOffCPU float64 `json:"redis_us_per_hand_off"`
}

func (r result) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// rows are the lines of the table.
var rows = []struct {
	name  string
	value func(result) string
}{
	{"waiting tasks", func(r result) string { return fmt.Sprint(r.Tasks) }},
	{"resources", func(r result) string { return fmt.Sprint(r.Resources) }},
	{"TTL of their locks", func(r result) string { return r.TTL }},
	{"enqueued, per second", func(r result) string { return report.Short(r.EnqueueRate) }},
	{"  CPU of Redis for each, µs", func(r result) string { return report.Short(r.EnqueueCPU) }},
	{"parked, per second", func(r result) string { return report.Short(r.ParkRate) }},
	{"  CPU of Redis for each, µs", func(r result) string { return report.Short(r.ParkCPU) }},
	{"memory beyond asynq's, bytes", func(r result) string { return report.Short(r.Bytes) }},
	{"start of a worker, ms", func(r result) string { return report.Short(r.Start) }},
	{"stop of a worker, ms", func(r result) string { return report.Short(r.Stop) }},
	{"dashboard, queues, ms", func(r result) string { return report.Short(r.PageQueues) }},
	{"dashboard, queue, ms", func(r result) string { return report.Short(r.PageQueue) }},
	{"dashboard, first tasks, ms", func(r result) string { return report.Short(r.PageFirst) }},
	{"dashboard, last tasks, ms", func(r result) string { return report.Short(r.PageLast) }},
	{"CPUs of Redis while they wait", func(r result) string { return report.Short(r.WatchLoad) }},
	{"list, ms", func(r result) string { return report.Short(r.List) }},
	{"show a resource, ms", func(r result) string { return report.Short(r.Show) }},
	{"why does a task wait, ms", func(r result) string { return report.Short(r.Why) }},
	{"top, ms", func(r result) string { return report.Short(r.Top) }},
	{"page of locks, ms", func(r result) string { return report.Short(r.LocksPage) }},
	{"hand-off p50 while asked all that once a second, ms (ratio)", func(r result) string { return ratio(r.LookedP50, r.AloneP50) }},
	{"hand-off p99 likewise", func(r result) string { return ratio(r.LookedP99, r.AloneP99) }},
	{"hand-off mean likewise", func(r result) string { return ratio(r.LookedMean, r.AloneMean) }},
	{"hand-off p50, few waiting, ms", func(r result) string { return report.Short(r.FewP50) }},
	{"hand-off p99, few waiting, ms", func(r result) string { return report.Short(r.FewP99) }},
	{"hand-off p50, ms (ratio)", func(r result) string { return ratio(r.P50, r.FewP50) }},
	{"hand-off p99, ms (ratio)", func(r result) string { return ratio(r.P99, r.FewP99) }},
	{"  CPU of Redis for each, µs", func(r result) string { return report.Short(r.HandOffCPU) }},
}

// ratio shows a time, and its ratio to another.
func ratio(ms, to float64) string { return fmt.Sprintf("%s (%.2f)", report.Short(ms), ms/to) }

// writeTable writes a column for each case.
func writeTable(w io.Writer, results []result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := []string{row.name}
		for _, r := range results {
			cells = append(cells, row.value(r))
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush() // tells of the errors of the lines before, too
}
