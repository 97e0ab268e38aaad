package contention

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/pprof/profile"

	"github.com/sidingq/siding/internal/sleep"
)

const (
	// longest is for how many seconds a request may collect waits at most.
	longest = 3600
	// patience is how long the answer may take after that.
	patience = 30 * time.Second
)

// ServeHTTP writes the profile: all waits since the start of the worker or, with ?seconds=30, those that
// end in the next 30 s. The profiles of net/http/pprof have the same parameter. It answers 400 unless
// seconds is a number from 1 to 3600.
func (p *Profile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin, waits := p.start, p.now()
	if text := r.FormValue("seconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 || seconds > longest {
			http.Error(w, fmt.Sprintf("seconds: want 1 to %d, have %q", longest, text), http.StatusBadRequest)
			return
		}
		span := time.Duration(seconds) * time.Second
		// A server may have a shorter limit for other requests. A writer without deadlines has none.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(span + patience))
		begin = time.Now()
		if sleep.For(r.Context(), span) != nil {
			return // the caller has gone
		}
		waits = since(waits, p.now())
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="contention.pb.gz"`)
	w.Header().Set("Cache-Control", "no-store")
	_ = write(w, waits, begin, time.Now()) // fails only if the caller has gone
}

// write writes the waits in the format of pprof.
func write(w io.Writer, waits map[wait]total, begin, end time.Time) error {
	b := newBuilder(begin, end)
	for w, sum := range waits {
		b.add(w, sum)
	}
	return b.profile.Write(w)
}

// A builder makes a profile. The names of its functions are words, such as "class order".
type builder struct {
	profile   *profile.Profile
	locations map[string]*profile.Location // by the name of the function
}

func newBuilder(begin, end time.Time) *builder {
	waits := &profile.ValueType{Type: "waits", Unit: "count"}
	return &builder{
		locations: make(map[string]*profile.Location),
		profile: &profile.Profile{
			SampleType:        []*profile.ValueType{waits, {Type: "delay", Unit: "nanoseconds"}},
			DefaultSampleType: "delay",
			PeriodType:        waits,
			Period:            1,
			TimeNanos:         begin.UnixNano(),
			DurationNanos:     end.Sub(begin).Nanoseconds(),
			// Without a mapping pprof looks for a binary.
			Mapping: []*profile.Mapping{{ID: 1, File: "siding", HasFunctions: true}},
		},
	}
}

// add adds a sample. Its stack is the waiting task, and the class at the bottom.
func (b *builder) add(w wait, sum total) {
	b.profile.Sample = append(b.profile.Sample, &profile.Sample{
		Location: []*profile.Location{b.location(w.kind + " waits"), b.location("class " + w.class)},
		Value:    []int64{sum.waits, sum.delay.Nanoseconds()},
		Label:    map[string][]string{"kind": {w.kind}, "class": {w.class}},
	})
}

func (b *builder) location(name string) *profile.Location {
	l, ok := b.locations[name]
	if !ok {
		id := uint64(len(b.locations)) + 1
		f := &profile.Function{ID: id, Name: name, SystemName: name}
		l = &profile.Location{ID: id, Mapping: b.profile.Mapping[0], Line: []profile.Line{{Function: f}}}
		b.profile.Function, b.profile.Location = append(b.profile.Function, f), append(b.profile.Location, l)
		b.locations[name] = l
	}
	return l
}
