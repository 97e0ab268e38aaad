package lockpage

import (
	"math"
	"sync"
	"time"

	"github.com/sidingq/siding/queue"
)

const (
	// sampleTime is the time of one point of a chart.
	sampleTime = 5 * time.Second
	// samples is how many points a chart has: 15 minutes.
	samples = 180
)

// sampleOf returns the number of the sample to which a time belongs.
func sampleOf(t time.Time) int64 { return t.UnixNano() / int64(sampleTime) }

// A History has what a worker has seen in the last 15 minutes. Its Observe fits
// [queue.ServerConfig]. The zero value is ready to use. A History is safe for concurrent use. It
// always takes 150 KB.
type History struct {
	mu   sync.Mutex
	kept [samples + 1]sample // the last one is not complete yet
}

// A sample is what happened in 5 s.
type sample struct {
	number   int64
	refusals uint32
	handOffs histogram
}

// Observe counts a hand-off or a refusal, and leaves out other events.
func (h *History) Observe(e queue.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch s := h.at(time.Now()); {
	case e.Kind == queue.EventParked:
		s.refusals++
	case e.Kind == queue.EventAcquired && e.HandOff > 0:
		s.handOffs.add(e.HandOff)
	}
}

// at returns the sample of a time, which replaces an old one in its place.
func (h *History) at(t time.Time) *sample {
	number := sampleOf(t)
	s := &h.kept[number%int64(len(h.kept))]
	if s.number != number {
		*s = sample{number: number}
	}
	return s
}

// A record is what a chart shows of a History.
type record struct {
	// Of each sample, the oldest first. A sample without hand-offs is NaN.
	p50, p99 []float64 // seconds
	refusals []float64 // a second
	// Of all samples together.
	handOffs       int64
	refused        int
	allP50, allP99 time.Duration
}

// read returns the complete samples of the 15 minutes before now.
func (h *History) read(now time.Time) record {
	h.mu.Lock()
	defer h.mu.Unlock()
	var r record
	var all histogram
	first := sampleOf(now) - samples
	for number := first; number < first+samples; number++ {
		s := &h.kept[number%int64(len(h.kept))]
		if s.number != number {
			s = &sample{}
		}
		all.merge(&s.handOffs)
		r.p50 = append(r.p50, seconds(s.handOffs.quantile(50)))
		r.p99 = append(r.p99, seconds(s.handOffs.quantile(99)))
		r.refusals = append(r.refusals, float64(s.refusals)/sampleTime.Seconds())
		r.refused += int(s.refusals)
	}
	r.handOffs, r.allP50, r.allP99 = all.total, all.quantile(50), all.quantile(99)
	return r
}

// seconds returns a duration in seconds, and NaN for none.
func seconds(d time.Duration) float64 {
	if d == 0 {
		return math.NaN()
	}
	return d.Seconds()
}

// A histogram counts durations in buckets. The upper bound of each is 10 % above that of the one
// before.
type histogram struct {
	total  int64
	counts [200]uint32 // up to 3 minutes
}

const growth = 1.1

func (h *histogram) add(d time.Duration) {
	bucket := int(math.Ceil(math.Log(max(d.Seconds()*1e6, 1)) / math.Log(growth)))
	h.total++
	h.counts[min(bucket, len(h.counts)-1)]++
}

func (h *histogram) merge(other *histogram) {
	h.total += other.total
	for bucket, n := range other.counts {
		h.counts[bucket] += n
	}
}

// quantile returns the upper bound of the bucket with the given percentile, and 0 of an empty
// histogram.
func (h *histogram) quantile(percent int64) time.Duration {
	rank := (h.total*percent + 99) / 100 // rounded up
	for bucket, n := range h.counts {
		if rank -= int64(n); rank <= 0 && h.total > 0 {
			return time.Duration(math.Pow(growth, float64(bucket)) * float64(time.Microsecond))
		}
	}
	return 0
}
