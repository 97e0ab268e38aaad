package tasks_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

func TestResources(t *testing.T) {
	t.Parallel()
	tests := []struct {
		task           queue.Guarded
		kind, resource string
	}{
		{tasks.AuditOrder{Order: "536365"}, "order:audit", "order:536365"},
		{tasks.AuditOrder{Order: " 536365\t"}, "order:audit", "order:536365"},
		{tasks.AllocateLine{Order: "C536379"}, "warehouse:allocate", "order:C536379"},
		{tasks.DeductStock{SKU: "85049a"}, "stock:deduct", "sku:85049A"},
		{tasks.DeductStock{SKU: "85049A "}, "stock:deduct", "sku:85049A"},
		{tasks.DebitBalance{Customer: "17850"}, "balance:debit", "account:17850"},
		{tasks.PlaceOrder{User: "ann@example.org"}, "order:place", "user:ann@example.org"},
		{tasks.TransferBalance{From: " 2", To: "1"}, "balance:transfer", queue.AllOf("account:1", "account:2")},
		{tasks.FulfilOrder{Order: "1 ", Items: []tasks.Pick{{SKU: "85049a"}, {SKU: "22086"}}}, "order:fulfil", queue.AllOf("order:1", "sku:22086", "sku:85049A")},
	}
	for _, test := range tests {
		expect.Equal(t, fmt.Sprintf("kind of %+v", test.task), test.task.Kind(), test.kind)
		expect.Equal(t, fmt.Sprintf("resource of %+v", test.task), test.task.Resource(), test.resource)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	item := tasks.Item{SKU: "85123A", Quantity: 6, Price: 25500}
	basket := func(items ...tasks.Item) tasks.PlaceOrder {
		return tasks.PlaceOrder{User: "ann", Submission: "f1", Items: items}
	}
	picks := func(n int, more ...tasks.Pick) tasks.FulfilOrder {
		t := tasks.FulfilOrder{Order: "1"}
		for i := range n {
			t.Items = append(t.Items, tasks.Pick{SKU: "sku-" + string(rune('a'+i)), Quantity: 1})
		}
		t.Items = append(t.Items, more...)
		return t
	}
	tests := []struct {
		name string
		task queue.Validator
		want string // "" for valid
	}{
		{"audit", tasks.AuditOrder{Order: "536365"}, ""},
		{"audit of an empty order", tasks.AuditOrder{}, `order:audit: order: is empty`},
		{"audit of blanks", tasks.AuditOrder{Order: " \t "}, `order:audit: order: is empty`},
		{"audit of -1 lines", tasks.AuditOrder{Order: "1", Lines: -1}, `order:audit: lines: is negative`},
		{"brace after a blank", tasks.AuditOrder{Order: " a{b}"}, `order:audit: order: want printable characters without braces, have U+007B at byte 2`},
		{"long", tasks.AuditOrder{Order: strings.Repeat("5", 129)}, `order:audit: order: want at most 128 bytes, have 129`},
		{"longest", tasks.AuditOrder{Order: " " + strings.Repeat("5", 128)}, ""},
		{"brace", tasks.AuditOrder{Order: "{1}"}, `order:audit: order: want printable characters without braces, have U+007B at byte 1`},
		{"line feed", tasks.AuditOrder{Order: "1\n2"}, `order:audit: order: want printable characters without braces, have U+000A at byte 2`},
		{"NUL", tasks.AuditOrder{Order: "1\x002"}, `order:audit: order: want printable characters without braces, have U+0000 at byte 2`},
		{"not UTF-8", tasks.AuditOrder{Order: "1\xff2"}, `order:audit: order: want printable characters without braces, have U+FFFD at byte 2`},
		{"zero width", tasks.AuditOrder{Order: "1\u200b"}, `order:audit: order: want printable characters without braces, have U+200B at byte 2`},
		{"not ASCII", tasks.AuditOrder{Order: "Größe 5"}, ""},

		{"allocation", tasks.AllocateLine{Order: "536365", Line: 2, SKU: "POST", Quantity: -1, Price: 0}, ""},
		{"allocation without order", tasks.AllocateLine{SKU: "POST", Quantity: 1}, `warehouse:allocate: order: is empty`},
		{"allocation without SKU", tasks.AllocateLine{Order: "1", Quantity: 1}, `warehouse:allocate: sku: is empty`},
		{"allocation of nothing", tasks.AllocateLine{Order: "1", SKU: "POST"}, `warehouse:allocate: quantity: is zero`},
		{"allocation of too much", tasks.AllocateLine{Order: "1", SKU: "POST", Quantity: 1_000_000_001}, `warehouse:allocate: quantity: want -1000000000 to 1000000000`},
		{"allocation of too little", tasks.AllocateLine{Order: "1", SKU: "POST", Quantity: math.MinInt64}, `warehouse:allocate: quantity: want -1000000000 to 1000000000`},
		{"allocation of a negative line", tasks.AllocateLine{Order: "1", Line: -3, SKU: "POST", Quantity: 1}, `warehouse:allocate: line: is negative`},
		{"allocation that overflows", tasks.AllocateLine{Order: "1", SKU: "POST", Quantity: 2, Price: math.MaxInt64}, `warehouse:allocate: price: its product with the quantity is out of range`},
		{"allocation that overflows below", tasks.AllocateLine{Order: "1", SKU: "POST", Quantity: -1, Price: math.MinInt64}, `warehouse:allocate: price: its product with the quantity is out of range`},

		{"deduction", tasks.DeductStock{SKU: "85123A", Quantity: -6, Order: "C1", Line: 9}, ""},
		{"deduction without SKU", tasks.DeductStock{Quantity: 1, Order: "1"}, `stock:deduct: sku: is empty`},
		{"deduction of nothing", tasks.DeductStock{SKU: "85123A", Order: "1"}, `stock:deduct: quantity: is zero`},
		{"deduction without order", tasks.DeductStock{SKU: "85123A", Quantity: 1}, `stock:deduct: order: is empty`},

		{"debit", tasks.DebitBalance{Customer: "17850", Order: "1", Amount: -1}, ""},
		{"debit of nobody", tasks.DebitBalance{Customer: " ", Order: "1", Amount: 1}, `balance:debit: customer: is empty`},
		{"debit without order", tasks.DebitBalance{Customer: "17850", Amount: 1}, `balance:debit: order: is empty`},
		{"debit of nothing", tasks.DebitBalance{Customer: "17850", Order: "1"}, `balance:debit: amount: is zero`},

		{"placing", basket(item), ""},
		{"placing by nobody", tasks.PlaceOrder{Submission: "f1", Items: []tasks.Item{item}}, `order:place: user: is empty`},
		{"placing without submission", tasks.PlaceOrder{User: "ann", Items: []tasks.Item{item}}, `order:place: submission: is empty`},
		{"placing nothing", basket(), `order:place: items: is empty`},
		{"placing without SKU", basket(item, tasks.Item{Quantity: 1}), `order:place: items[1].sku: is empty`},
		{"placing a negative quantity", basket(tasks.Item{SKU: "1", Quantity: -1}), `order:place: items[0].quantity: is negative`},
		{"placing a negative price", basket(tasks.Item{SKU: "1", Quantity: 1, Price: -1}), `order:place: items[0].price: is negative`},
		{
			"placing too much", basket(tasks.Item{SKU: "1", Quantity: 1, Price: math.MaxInt64}, item),
			`order:place: items: the basket's value is out of range`,
		},

		{"transfer", tasks.TransferBalance{From: "1", To: "2", Cents: 92233720368547758}, ""},
		{"transfer from nobody", tasks.TransferBalance{To: "2", Cents: 1}, `balance:transfer: from: is empty`},
		{"transfer to nobody", tasks.TransferBalance{From: "1", Cents: 1}, `balance:transfer: to: is empty`},
		{"transfer to oneself", tasks.TransferBalance{From: "1", To: " 1", Cents: 1}, `balance:transfer: to: is the account that the sum comes from`},
		{"transfer of nothing", tasks.TransferBalance{From: "1", To: "2"}, `balance:transfer: cents: want 1 to 92233720368547758`},
		{"transfer back", tasks.TransferBalance{From: "1", To: "2", Cents: -1}, `balance:transfer: cents: want 1 to 92233720368547758`},
		{"transfer of too much", tasks.TransferBalance{From: "1", To: "2", Cents: 92233720368547759}, `balance:transfer: cents: want 1 to 92233720368547758`},

		{"fulfilment", picks(15), ""},
		{"fulfilment of no order", tasks.FulfilOrder{Items: picks(1).Items}, `order:fulfil: order: is empty`},
		{"fulfilment of nothing", picks(0), `order:fulfil: items: want 1 to 15, have 0`},
		{"fulfilment of too many", picks(16), `order:fulfil: items: want 1 to 15, have 16`},
		{"fulfilment without SKU", picks(1, tasks.Pick{Quantity: 1}), `order:fulfil: items[1].sku: is empty`},
		{"fulfilment of no units", picks(1, tasks.Pick{SKU: "1"}), `order:fulfil: items[1].quantity: is zero`},
		{"fulfilment of a return", picks(1, tasks.Pick{SKU: "1", Quantity: -1}), `order:fulfil: items[1].quantity: is negative`},
		{"fulfilment of one code twice", picks(2, tasks.Pick{SKU: "SKU-A ", Quantity: 1}), `order:fulfil: items[2].sku: comes twice`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := test.task.Validate()
			if test.want == "" {
				expect.That(t, err == nil, "want it valid, have %v", err)
				return
			}
			expect.That(t, err != nil && err.Error() == test.want, "want %s\nhave %v", test.want, err)
			_, ok := errors.AsType[*queue.TaskError](err)
			expect.That(t, ok, "want a TaskError, have %T", err)
		})
	}
}
