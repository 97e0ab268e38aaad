package oracle_test

import (
	"database/sql"
	_ "embed" // for good.sql
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/tasks/ledger"
	"github.com/sidingq/siding/tasks/oracle"
)

//go:embed testdata/good.sql
var good string

// wentIn is what good.sql is the outcome of.
func wentIn() oracle.Input {
	return oracle.Input{
		Lines: slices.Values([]oracle.Line{
			{Number: 2, Order: "536365", SKU: "85049a", Quantity: 6, Price: 25500, Customer: "17850"},
			{Number: 3, Order: "536365", SKU: "POST", Quantity: 1, Price: 10000, Customer: "17850"},
			{Number: 4, Order: "C536379", SKU: "85049A", Quantity: -2, Price: 25500, Customer: "17850"},
			{Number: 5, Order: "536380", SKU: "85049A", Quantity: -9},
			{Number: 6, Order: "C536390", SKU: "POST", Quantity: -1, Price: 50000, Customer: "13047"},
		}),
		Placements: []oracle.Placement{
			{User: "ann", Submission: "f1"},
			{User: "ann", Submission: "f2"},
			{User: "bob", Submission: "f1"},
			{User: "ann", Submission: "f1"}, // submitted twice
		},
		Transfers: []oracle.Transfer{{From: " 13047", To: "12583", Amount: 20000}, {From: "13047", To: "12583", Amount: 40000}},
		Fulfilments: []oracle.Fulfilment{
			{Order: "7001", Units: map[string]int64{"22086": 4, "22087": 3}},
			{Order: "7002", Units: map[string]int64{"22086": 7, "22087": 1}},
		},
		OpeningStock: 10,
	}
}

// load returns a database with good.sql in it, and with what statement then did.
func load(t *testing.T, statement string) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := expect.Value(ledger.Open(path))(t)
	expect.OK(t, l.CreateTables(t.Context()))
	expect.OK(t, l.Close())
	db := expect.Value(sql.Open("sqlite", path))(t)
	t.Cleanup(func() { _ = db.Close() })
	for _, s := range []string{good, statement} {
		expect.OK(t, expect.Err(db.ExecContext(t.Context(), s)))
	}
	return db
}

func TestGood(t *testing.T) {
	t.Parallel()
	report := expect.Value(oracle.Check(t.Context(), load(t, ""), wentIn()))(t)
	want := oracle.Report{Lines: 5, Orders: 4, Placements: 3, Effects: 28}
	expect.Same(t, "report", report, want)
	if text := "5 lines of 4 orders, 3 placements, 28 effects: no differences"; !report.OK() || report.String() != text {
		t.Errorf("want %q, have %q", text, report)
	}
}

// TestNoticed does to a good ledger what a lost lock, a lost task, a repeated
// task or a wrong rule would do. The oracle has to see each of them.
func TestNoticed(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, statement, want string }{
		{"allocation lost", "DELETE FROM journal WHERE task_id = 'a1'", "line 2 of order 536365: allocations: want 1, have 0"},
		{"allocation twice", again("a3", "x", 4), "line 3 of order 536365: allocations: want 1, have 2"},
		{"allocation of no line", again("a3", "x", 4) + "; UPDATE journal SET line = 9 WHERE task_id = 'x'", "task x, warehouse:allocate on order:536365, fence 4: no such line"},
		{"allocation of another quantity", "UPDATE journal SET quantity = 7 WHERE task_id = 'a1'", "want 6 of 85049A for 153000, have 7 of 85049A for 153000"},
		{"allocation of another value", "UPDATE journal SET amount = 1 WHERE task_id = 'a1'", "want 6 of 85049A for 153000, have 6 of 85049A for 1"},
		{"allocation of another product", "UPDATE journal SET sku = '22086' WHERE task_id = 'a1'", "want 6 of 85049A for 153000, have 6 of 22086 for 153000"},
		{"allocation under another lock", "UPDATE journal SET subject = 'order:1' WHERE task_id = 'a1'", "task a1, warehouse:allocate on order:1, fence 1: no such line"},
		{"audit lost", "DELETE FROM journal WHERE task_id = 'a2'", "order 536365: audits: want 1, have 0"},
		{"audit twice", again("a2", "x", 4), "order 536365: audits: want 1, have 2"},
		{"audit expected another number", "UPDATE journal SET quantity = 3 WHERE task_id = 'a7'", "want 1 lines to be expected, have 3"},
		{
			"audit of another verdict", `UPDATE journal SET row_after = replace(row_after, 'unchecked', 'complete') WHERE task_id = 'a5'`,
			`"verdict":"unchecked"} afterwards, have {"lines":1,"units":-2,"value":-51000,"audits":1,"audited_lines":1,"verdict":"complete"}`,
		},
		{"deduction lost", "DELETE FROM journal WHERE task_id = 'd2'", "line 5 of order 536380: deductions: want 1, have 0"},
		{"deduction twice", again("d1", "x", 9), "line 2 of order 536365: deductions: want 1, have 2"},
		{
			"deduction of a service", again("d1", "x", 9) + "; UPDATE journal SET line = 3, sku = 'POST', subject = 'sku:POST' WHERE task_id = 'x'",
			"no such line of goods",
		},
		{"deduction of another case", "UPDATE journal SET sku = '85049a', subject = 'sku:85049a' WHERE task_id = 'd1'", "no such line of goods"},
		{"deduction under another lock", "UPDATE journal SET subject = 'sku:85049a' WHERE task_id = 'd1'", "task d1, stock:deduct on sku:85049a, fence 1: no such line of goods"},
		{"write-off put back", "UPDATE journal SET quantity = -9 WHERE task_id = 'd2'", "want 9 of 85049A, have -9 of 85049A"},
		{"cancellation taken", "UPDATE journal SET quantity = 2 WHERE task_id = 'd3'", "want -2 of 85049A, have 2 of 85049A"},
		{"debit lost", "DELETE FROM journal WHERE task_id = 'b2'", "order C536379: debits: want 1, have 0"},
		{"debit twice", again("b1", "x", 9), "order 536365: debits: want 1, have 2"},
		{"debit of another amount", "UPDATE journal SET amount = 163001 WHERE task_id = 'b1'", "want the order's value 163000, have 163001"},
		{"debit of another customer", "UPDATE journal SET subject = 'account:1' WHERE task_id = 'b1'", "no such order of the customer"},
		{"debit of nobody", "UPDATE journal SET subject = 'account:' WHERE task_id = 'b1'", "no such order of the customer"},
		{
			"debit of an order without customer", again("b1", "x", 9) + "; UPDATE journal SET order_no = '536380' WHERE task_id = 'x'",
			"no such order of the customer",
		},
		{"placement lost", "DELETE FROM placements WHERE task_id = 'p2'", "user ann: orders of submission f2: want 1, have 0"},
		{"placement twice", "INSERT INTO placements SELECT 'x', user_id, 3, submission, 1, 1, 1 FROM placements WHERE task_id = 'p2'", "user ann: orders of submission f2: want 1, have 2"},
		{"same number twice", "UPDATE placements SET number = 1 WHERE task_id = 'p2'", "user ann: want order number 2, have 1"},
		{"number left out", "UPDATE placements SET number = 3 WHERE task_id = 'p2'", "user ann: want order number 2, have 3"},
		{"unknown submission", "UPDATE placements SET submission = 'f9' WHERE task_id = 'p2'", "user ann: no such submission f9 went in"},
		{"placement not journaled", "DELETE FROM journal WHERE task_id = 'p3'", "user:bob: want no row, as no task wrote it"},
		{"user miscounted", "UPDATE users SET placed = 3 WHERE user_id = 'ann'", `user:ann: want {"placed":2} after the replay, have {"placed":3}`},
		{"unknown user", again("p3", "x", 9) + "; UPDATE journal SET subject = 'user:eve' WHERE task_id = 'x'", "user:eve: want a row, have none"},
		{"unknown kind", "UPDATE journal SET kind = 'stock:audit' WHERE task_id = 'd1'", `kind "stock:audit" is not known`},

		{"transfer lost", "DELETE FROM journal WHERE task_id = 't1'", "balance:transfer: account:12583 -20000, account:13047 20000: want 1, have 0"},
		{"transfer twice", again("t1", "x", 9), "balance:transfer: account:12583 -20000, account:13047 20000: want 1, have 2"},
		{"half of a transfer", "DELETE FROM journal WHERE task_id = 't1' AND part = 1", "balance:transfer: account:13047 20000: want 0, have 1"},
		{"transfer declined", `UPDATE journal SET row_after = '{"balance":50000,"declined":1}' WHERE task_id = 't1' AND part = 0`, "want 2 resources changed, have 1"},
		{"transfer that is too much", `UPDATE journal SET row_after = '{"balance":-10000}' WHERE task_id = 't2' AND part = 0`, "account:13047 40000: want 0 resources changed, have 1"},
		{"declined, yet credited", `UPDATE journal SET row_after = '{"balance":60000}' WHERE task_id = 't2' AND part = 1`, "account:13047 40000: want 0 resources changed, have 1"},
		{"fulfilment lost", "DELETE FROM journal WHERE task_id = 'f1'", "order:fulfil: order:7001 7, sku:22086 4, sku:22087 3: want 1, have 0"},
		{"fulfilment of another quantity", "UPDATE journal SET quantity = 5 WHERE task_id = 'f1' AND part = 1", "order:fulfil: order:7001 7, sku:22086 5, sku:22087 3: want 0, have 1"},
		{"goods of a short order", `UPDATE journal SET row_after = '{"on_hand":6}' WHERE task_id = 'f2' AND part = 2`, "task f2, order:fulfil: order:7002 8, sku:22086 7, sku:22087 1: want 0 resources changed, have 1"},
		{"short without need", `UPDATE journal SET row_after = '{"fulfilment":"short"}' WHERE task_id = 'f1' AND part = 0`, "want 3 resources changed, have 2"},
		{
			"fulfilled again", "DELETE FROM journal WHERE task_id = 'f2'" +
				"; INSERT INTO journal SELECT 'f2', part, kind, subject, fence + 1, order_no, line, sku, quantity, amount, row_after, 1 FROM journal WHERE task_id = 'f1'" +
				`; UPDATE journal SET row_after = '{"on_hand":2}' WHERE task_id = 'f2' AND part = 1`,
			"task f2, order:fulfil: order:7001 7, sku:22086 4, sku:22087 3: want 0 resources changed, have 1",
		},
		{"order left short", "UPDATE orders SET fulfilment = 'short'", `order:7001: want {"fulfilment":"fulfilled"} after the replay, have {"fulfilment":"short"}`},

		{"order overwritten", "UPDATE orders SET lines = 1, units = 6 WHERE order_no = '536365'", `after the replay, have {"lines":1,"units":6,"value":163000`},
		{"order row of another audit", "UPDATE orders SET verdict = 'complete' WHERE order_no = '536365'", `"verdict":"partial"} after the replay, have {"lines":2`},
		{"stock overwritten", "UPDATE stock SET back_ordered = 5", `sku:85049A: want {"back_ordered":3} after the replay, have {"back_ordered":5}`},
		{"both shelf and back-orders", "UPDATE stock SET back_ordered = 4, on_hand = 1", `sku:85049A: want {"back_ordered":3} after the replay, have {"on_hand":1,"back_ordered":4}`},
		{"balance overwritten", "UPDATE accounts SET balance = -163000", `account:17850: want {"balance":-112000} after the replay, have {"balance":-163000}`},
		{"row missing", "DELETE FROM stock", "sku:85049A: want a row, have none"},
		{"order missing", "DELETE FROM orders WHERE order_no = '536380'", "order:536380: want a row, have none"},
		{"surplus order", "INSERT INTO orders (order_no) VALUES ('1')", "order:1: want no row, as no task wrote it, have {}"},
		{"surplus stock", "INSERT INTO stock (sku, on_hand) VALUES ('85049a', 9)", "sku:85049a: want no row, as no task wrote it"},
		{"surplus account", "INSERT INTO accounts (customer, balance) VALUES ('', 5)", "account:: want no row, as no task wrote it"},
		{"lost update", `UPDATE journal SET row_after = '{"on_hand":1,"back_ordered":0}' WHERE task_id = 'd2'`, `fence 2: want {"back_ordered":5} afterwards, have {"on_hand":1}`},
		{"wrong order", "UPDATE journal SET fence = 4 WHERE task_id = 'd1'", `fence 2: want {"on_hand":1} afterwards, have {"back_ordered":5}`},
		{"two holders", "UPDATE journal SET fence = 1 WHERE task_id = 'd2'", "task d2, stock:deduct on sku:85049A, fence 1: another effect on it has the same fence"},
		{"no lock", "UPDATE journal SET fence = 0 WHERE task_id = 'd1'", "task d1, stock:deduct on sku:85049A, fence 0: another effect on it has the same fence"},
		{"after-value broken", "UPDATE journal SET row_after = '' WHERE task_id = 'd1'", `after-value ""`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := expect.Value(oracle.Check(t.Context(), load(t, test.statement), wentIn()))(t)
			expect.That(t, !report.OK() && strings.Contains(report.String(), test.want), "want %q among the differences, have %v", test.want, report)
		})
	}
}

// again is a statement that journals the effect of one task as another's too.
func again(task, as string, fence int) string {
	return strings.NewReplacer("$task", task, "$as", as, "$fence", string(rune('0'+fence))).Replace(
		`INSERT INTO journal SELECT '$as', part, kind, subject, $fence, order_no, line, sku, quantity, amount, row_after, recorded_ms
		FROM journal WHERE task_id = '$task'`)
}

// TestInput: lines that contradict each other are differences.
func TestInput(t *testing.T) {
	t.Parallel()
	line := oracle.Line{Number: 9, Order: "536365", SKU: "85123A", Quantity: 1, Customer: "17850"}
	change := func(f func(*oracle.Line)) oracle.Line {
		l := line
		f(&l)
		return l
	}
	tests := []struct {
		name  string
		lines []oracle.Line
		want  string
	}{
		{"twice", []oracle.Line{line, line}, "line 9 of order 536365: given twice"},
		{"two customers", []oracle.Line{line, change(func(l *oracle.Line) { l.Number, l.Customer = 10, "" })}, `line 10 of order 536365: want the order's customer "17850", have ""`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := expect.Value(oracle.Check(t.Context(), load(t, ""), oracle.Input{Lines: slices.Values(test.lines), OpeningStock: 10}))(t)
			expect.That(t, strings.Contains(report.String(), test.want), "want %q among the differences, have %v", test.want, report)
		})
	}
}

func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	in := wentIn()
	for i := range 30 {
		in.Placements = append(in.Placements, oracle.Placement{User: "eve", Submission: fmt.Sprint(i)})
	}
	report := expect.Value(oracle.Check(t.Context(), load(t, ""), in))(t)
	if have := report.String(); len(report.Differences) != 31 || !strings.HasSuffix(have, "\n  and 11 more") || strings.Count(have, "\n") != 21 {
		t.Errorf("want 20 of 31 differences, have %v", report)
	}
}

func TestNoLedger(t *testing.T) {
	t.Parallel()
	if report, err := oracle.Check(t.Context(), load(t, "DROP TABLE journal"), wentIn()); err == nil {
		t.Errorf("want an error, have %v", report)
	}
}
