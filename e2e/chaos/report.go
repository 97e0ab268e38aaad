package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A Report is what is kept of a run, one line of JSON.
type Report struct {
	Seed       uint64            `json:"seed"`
	Scenario   Scenario          `json:"scenario"`
	Seconds    float64           `json:"seconds"`
	Tasks      int               `json:"tasks"`   // accepted
	Effects    int               `json:"effects"` // in the ledger
	Runs       int               `json:"runs"`
	Wrong      []string          `json:"wrong"`
	Faults     map[Kind]*Account `json:"faults"`
	Back       []time.Duration   `json:"back"`
	Goroutines int               `json:"goroutines"` // the most of a worker at the end
	Memory     int               `json:"memory"`     // likewise, bytes
}

// ReadReports reads lines of JSON.
func ReadReports(r io.Reader) ([]Report, error) {
	var reports []Report
	for lines := json.NewDecoder(r); ; {
		var report Report
		switch err := lines.Decode(&report); err {
		case nil:
			reports = append(reports, report)
		case io.EOF:
			return reports, nil
		default:
			return nil, fmt.Errorf("report %d: %w", len(reports)+1, err)
		}
	}
}

// WriteTable writes what the runs came to as Markdown.
func WriteTable(w io.Writer, reports []Report) error {
	total := make(map[Kind]*Account)
	var sum Account
	wrong := 0
	var back []time.Duration
	for _, r := range reports {
		for kind, a := range r.Faults {
			t := total[kind]
			if t == nil {
				t = &Account{}
				total[kind] = t
			}
			t.add(a)
			sum.add(a)
		}
		wrong += len(r.Wrong)
		back = append(back, r.Back...)
	}
	b := &strings.Builder{}
	b.WriteString("| fault | injections | tasks | lost | doubled | overlapping holds | run again | recovered p50 | max | idle |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, t := range traits {
		if a := total[t.kind]; a != nil {
			a.row(b, string(t.kind))
		}
	}
	sum.row(b, "all")
	fmt.Fprintf(b, "\n%d runs, %d findings.", len(reports), wrong)
	if len(back) > 0 {
		fmt.Fprintf(b, " %d guarded tasks were at work when their worker was killed and ran again after %s (p50), %s (max).",
			len(back), seconds(median(back)), seconds(slices.Max(back)))
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *Account) add(b *Account) {
	a.Injections += b.Injections
	a.Tasks += b.Tasks
	a.Lost += b.Lost
	a.Doubled += b.Doubled
	a.Repeated += b.Repeated
	a.Overlaps += b.Overlaps
	a.Recovered = append(a.Recovered, b.Recovered...)
	a.Idle = max(a.Idle, b.Idle)
}

func (a *Account) row(b *strings.Builder, name string) {
	p50, most := "", ""
	if len(a.Recovered) > 0 {
		p50, most = seconds(median(a.Recovered)), seconds(slices.Max(a.Recovered))
	}
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %s | %s | %s |\n",
		name, a.Injections, a.Tasks, a.Lost, a.Doubled, a.Overlaps, a.Repeated, p50, most, seconds(a.Idle))
}

func median(d []time.Duration) time.Duration {
	d = slices.SortedFunc(slices.Values(d), cmp.Compare)
	return d[len(d)/2]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
