package fetch

import (
	"strings"
	"testing"
)

// Each line is an event, and each column the state before it. The dots are states that stay.
const wantTransitions = `
              scanning waiting  taking   delivering resting  gone
held          waiting  .        .        .          waiting  waiting
notified      .        taking   .        .          taking   .
delivered     .        delivering .      .          .        .
unreachable   .        scanning .        .          scanning .
timedOut      .        resting  .        .          .        .
overdue       .        .        .        .          gone     .
foundNone     .        .        waiting  waiting    .        .
tookLast      gone     .        gone     .          .        .
claimedLast   .        .        .        gone       gone     .
tookSome      .        .        scanning scanning   scanning scanning
`

func TestTransitions(t *testing.T) {
	t.Parallel()
	states := map[string]state{"scanning": scanning, "waiting": waiting, "taking": taking, "delivering": delivering, "resting": resting, "gone": gone}
	events := map[string]event{
		"held": held, "notified": notified, "delivered": delivered, "unreachable": unreachable, "timedOut": timedOut,
		"overdue": overdue, "foundNone": foundNone, "tookLast": tookLast, "claimedLast": claimedLast, "tookSome": tookSome,
	}
	lines := strings.Split(strings.TrimSpace(wantTransitions), "\n")
	columns, pairs := strings.Fields(lines[0]), 0
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		for i, want := range cells[1:] {
			from := columns[i]
			if want == "." {
				want = from
			}
			if have := next(states[from], events[cells[0]]); have != states[want] {
				t.Errorf("%s, %s: want %s, have state %d", from, cells[0], want, have)
			}
			pairs++
		}
	}
	if pairs != len(states)*len(transitions) || len(events) != len(transitions) {
		t.Errorf("want each pair of %d states and %d events, have %d", len(states), len(transitions), pairs)
	}
}
