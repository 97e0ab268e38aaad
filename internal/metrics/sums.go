package metrics

import "github.com/prometheus/client_golang/prometheus"

// sums adds values up by their labels. The zero value is ready to use.
type sums struct {
	values map[series]float64
}

// A series names a value. No gauge has more than two labels.
type series struct {
	desc   *prometheus.Desc
	labels [2]string
	count  int
}

func seriesOf(desc *prometheus.Desc, labels []string) series {
	s := series{desc: desc, count: len(labels)}
	copy(s.labels[:], labels)
	return s
}

// add adds v to a series.
func (s *sums) add(desc *prometheus.Desc, v float64, labels ...string) {
	if s.values == nil {
		s.values = make(map[series]float64)
	}
	s.values[seriesOf(desc, labels)] += v
}

// most raises a series to v, if it is lower.
func (s *sums) most(desc *prometheus.Desc, v float64, labels ...string) {
	s.add(desc, 0, labels...)
	key := seriesOf(desc, labels)
	s.values[key] = max(s.values[key], v)
}

func (s *sums) metrics() []prometheus.Metric {
	all := make([]prometheus.Metric, 0, len(s.values))
	for key, v := range s.values {
		all = append(all, prometheus.MustNewConstMetric(key.desc, prometheus.GaugeValue, v, key.labels[:key.count]...))
	}
	return all
}
