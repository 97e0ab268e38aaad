package tasks_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, payload string
		want          queue.Task
	}{
		{"order:audit", `{"order":"536365"}`, tasks.AuditOrder{Order: "536365"}},
		{"order:audit", ` {"order":"536365","lines":7} `, tasks.AuditOrder{Order: "536365", Lines: 7}},
		{
			"warehouse:allocate", `{"order":"536365","line":2,"sku":"85123A","quantity":6,"price":"2.55"}`,
			tasks.AllocateLine{Order: "536365", Line: 2, SKU: "85123A", Quantity: 6, Price: 25500},
		},
		{
			"stock:deduct", `{"sku":"85049a","quantity":-6,"order":"C536379","line":3}`,
			tasks.DeductStock{SKU: "85049a", Quantity: -6, Order: "C536379", Line: 3},
		},
		{
			"balance:debit", `{"customer":"17850","order":"536365","amount":"-139.12"}`,
			tasks.DebitBalance{Customer: "17850", Order: "536365", Amount: -1391200},
		},
		{
			"order:place", `{"user":"ann","submission":"f1","items":[{"sku":"85123A","quantity":6,"price":"2.55"}]}`,
			tasks.PlaceOrder{User: "ann", Submission: "f1", Items: []tasks.Item{{SKU: "85123A", Quantity: 6, Price: 25500}}},
		},
		{"balance:transfer", `{"from":"17850","to":"13047","cents":250}`, tasks.TransferBalance{From: "17850", To: "13047", Cents: 250}},
		{
			"order:fulfil", `{"order":"536365","items":[{"sku":"85123A","quantity":6}]}`,
			tasks.FulfilOrder{Order: "536365", Items: []tasks.Pick{{SKU: "85123A", Quantity: 6}}},
		},
	}
	var kinds []string
	for _, test := range tests {
		kinds = append(kinds, test.kind)
		have, err := tasks.Decode(test.kind, []byte(test.payload))
		if err != nil {
			t.Errorf("%s: %v", test.payload, err)
			continue
		}
		expect.Same(t, test.payload, have, test.want)
		expect.That(t, have.Kind() == test.kind, "%s: want its own kind, have %s", test.kind, have.Kind())
	}
	slices.Sort(kinds)
	expect.Same(t, "kinds, of those that were decoded", tasks.Kinds(), slices.Compact(kinds))
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, kind, payload, want string }{
		{
			"unknown kind", "order:cancel", `{}`,
			`kind: want one of balance:debit, balance:transfer, order:audit, order:fulfil, order:place, stock:deduct, warehouse:allocate, have "order:cancel"`,
		},
		{"no payload", "order:audit", ``, `order:audit: payload: want a JSON object: EOF`},
		{"no JSON", "order:audit", `order=1`, `order:audit: payload: want a JSON object: invalid character 'o' looking for beginning of value`},
		{"cut short", "order:audit", `{"order":"1"`, `order:audit: payload: want a JSON object: unexpected EOF`},
		{"dirt within", "order:audit", `{"order":"1" secret`, `order:audit: payload: want a JSON object: invalid character 's' after object key:value pair`},
		{"money of many decimals", "balance:debit", `{"amount":"2.55555"}`, `balance:debit: payload: amount: want at most 4 decimals`},
		{"money out of range", "balance:debit", `{"amount":"99999999999999999999"}`, `balance:debit: payload: amount: want -922337203685477.5808 to 922337203685477.5807`},
		{"null", "order:audit", `null`, `order:audit: order: is empty`},
		{"array", "order:audit", `[]`, `order:audit: payload: want an object, have array`},
		{"unknown field", "order:audit", `{"order":"1","oder":"2"}`, `order:audit: payload: unknown field "oder"`},
		{"unknown field within", "order:place", `{"items":[{"code":1}]}`, `order:place: payload: unknown field "code"`},
		{"trailing object", "order:audit", `{"order":"1"}{"order":"2"}`, `order:audit: payload: want one JSON object, have more after it`},
		{"trailing dirt", "order:audit", `{"order":"1"}]`, `order:audit: payload: want one JSON object, have more after it`},
		{"number for a string", "order:audit", `{"order":536365}`, `order:audit: payload: order: want a string, have number`},
		{"string for a number", "stock:deduct", `{"quantity":"6"}`, `stock:deduct: payload: quantity: want a whole number, have string`},
		{"fraction", "stock:deduct", `{"quantity":0.5}`, `stock:deduct: payload: quantity: want a whole number, have number 0.5`},
		{"too large", "stock:deduct", `{"quantity":9223372036854775808}`, `stock:deduct: payload: quantity: want a whole number, have number 9223372036854775808`},
		{"number for money", "balance:debit", `{"amount":2.55}`, `balance:debit: payload: amount: want a string such as "2.55", have number`},
		{"no money", "balance:debit", `{"amount":"2,55"}`, `balance:debit: payload: amount: want a decimal such as 2.55`},
		{"no money within", "order:place", `{"items":[{"price":"2,55"}]}`, `order:place: payload: price: want a decimal such as 2.55`},
		{"object for an array", "order:place", `{"items":{}}`, `order:place: payload: items: want an array, have object`},
		{"fraction of a cent", "balance:transfer", `{"cents":0.5}`, `balance:transfer: payload: cents: want a whole number, have number 0.5`},
		{"price of goods that are paid", "order:fulfil", `{"items":[{"price":"1"}]}`, `order:fulfil: payload: unknown field "price"`},
		{"not valid", "balance:debit", `{"order":"1","amount":"1"}`, `balance:debit: customer: is empty`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			have, err := tasks.Decode(test.kind, []byte(test.payload))
			expect.That(t, err != nil && err.Error() == test.want, "want %s\nhave %v, %v", test.want, have, err)
		})
	}
}

// FuzzDecode looks for payloads that are accepted and should not be. A decoded task must be valid,
// name a usable resource, and survive being enqueued.
func FuzzDecode(f *testing.F) {
	for _, kind := range tasks.Kinds() {
		f.Add(kind, []byte(`{"order":"536365","line":2,"sku":"85049a","quantity":6,"price":"2.55"}`))
		f.Add(kind, []byte(`{"user":"u","submission":"s","items":[{"sku":"x","quantity":1,"price":"0.0001"}]}`))
		f.Add(kind, []byte(`{"from":"17850","to":"13047","cents":250}`))
		f.Add(kind, []byte(`{"order":"1","items":[{"sku":"x","quantity":1},{"sku":"y","quantity":2}]}`))
		f.Add(kind, []byte(`{"customer":"17850","order":"C1","amount":"-2.55","lines":3} `))
	}
	f.Fuzz(func(t *testing.T, kind string, payload []byte) {
		task, err := tasks.Decode(kind, payload)
		if err != nil {
			return
		}
		all := store.Names(task.Resource())
		expect.That(t, len(all) <= store.MaxResources, "want at most %d resources, have %q", store.MaxResources, all)
		for _, resource := range all {
			prefix, name, _ := strings.Cut(resource, ":")
			expect.That(t, prefix != "" && name != "" && strings.TrimSpace(name) == name && !strings.ContainsAny(name, "{}\n\x00"), "want a usable resource, have %q", resource)
		}
		text := expect.Value(json.Marshal(task))(t)
		again, err := tasks.Decode(kind, text)
		expect.Need(t, err == nil, "want %s accepted again, have %v", text, err)
		expect.Same(t, "decoded again", again, task)
	})
}
