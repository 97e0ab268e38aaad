package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/bench/internal/report"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := []int{5, 1, 4, 2, 3}
	for p, want := range map[float64]int{0: 1, 20: 1, 21: 2, 50: 3, 99: 5, 100: 5} {
		if have := report.Percentile(values, p); have != want {
			t.Errorf("%v %%: want %d, have %d", p, want, have)
		}
	}
	if diff := cmp.Diff([]int{5, 1, 4, 2, 3}, values); diff != "" {
		t.Errorf("want the values left as they are: %s", diff)
	}
}

// some has a rate of two contenders, and a time that only one of them has.
func some() *report.Results {
	var r report.Results
	rate := report.Figure{Case: "a case", Name: "rate", Unit: "1/s"}
	for _, v := range []float64{12345, 9.876, 300} {
		r.Add("a", rate, v)
		r.Add("b", rate, v/1000)
	}
	span := report.Figure{Case: "a case", Name: "time", Unit: "s"}
	r.Add("a", span, 1.5)
	r.Note("b", span, "unfinished: 3 of 4")
	return &r
}

// TestWriteRows: a contender that did not take part has no row, and a case with
// many figures has several blocks.
func TestWriteRows(t *testing.T) {
	t.Parallel()
	r := some()
	for _, name := range []string{"c", "d", "e", "f"} {
		r.Add("b", report.Figure{Case: "a case", Name: name, Unit: "%"}, 7)
	}
	var out strings.Builder
	if err := r.WriteRows(&out, []string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	want := `
a case  rate, 1/s           time, s             c, %  d, %  e, %
  a     300 (9.88-12345)    1.50                -     -     -
  b     0.300 (0.010-12.3)  unfinished: 3 of 4  7.00  7.00  7.00

a case  f, %
  b     7.00
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := some().WriteJSON(&out, []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	want := `{"contender":"a","case":"a case","figure":"rate","unit":"1/s","median":300,"min":9.876,"max":12345,"values":[12345,9.876,300]}
{"contender":"b","case":"a case","figure":"rate","unit":"1/s","median":0.3,"min":0.009876,"max":12.345,"values":[12.345,0.009876,0.3]}
{"contender":"a","case":"a case","figure":"time","unit":"s","median":1.5,"min":1.5,"max":1.5,"values":[1.5]}
{"contender":"b","case":"a case","figure":"time","unit":"s","note":"unfinished: 3 of 4"}
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// TestWriteJSONWithNetwork: results with a network and without cannot be taken for one another.
func TestWriteJSONWithNetwork(t *testing.T) {
	t.Parallel()
	r := report.Results{RTT: 500 * time.Microsecond}
	r.Add("a", report.Figure{Case: "a case", Name: "rate", Unit: "1/s"}, 3)
	var out strings.Builder
	if err := r.WriteJSON(&out, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	want := `{"contender":"a","case":"a case","figure":"rate","unit":"1/s","rtt_ms":0.5,"median":3,"min":3,"max":3,"values":[3]}` + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}
