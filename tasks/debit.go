package tasks

import (
	"context"

	"github.com/sidingq/siding/tasks/ledger"
)

// DebitBalance takes the amount of one order from a customer's balance, which
// opens at zero and may go below it.
type DebitBalance struct {
	// Customer is the account, never empty: else all orders without a customer
	// would wait for one lock.
	Customer string `json:"customer"`
	// Order is the order's number.
	Order string `json:"order"`
	// Amount is negative for a credit, never zero.
	Amount Money `json:"amount"`
}

// Kind returns "balance:debit".
func (DebitBalance) Kind() string { return "balance:debit" }

// Resource returns "account:" and the customer.
func (t DebitBalance) Resource() string { return "account:" + trim(t.Customer) }

// Validate refuses bad identifiers and an amount of zero.
func (t DebitBalance) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("customer", t.Customer)
	c.identifier("order", t.Order)
	if t.Amount == 0 {
		c.refuse("amount", "is zero")
	}
	return c.err
}

func (t DebitBalance) run(ctx context.Context, b *Book) error {
	account := ledger.Account{Customer: trim(t.Customer)}
	if err := b.read(ctx, &account); err != nil {
		return err
	}
	balance := account.Balance - int64(t.Amount)
	if (balance < account.Balance) != (t.Amount > 0) {
		return outOfRange(t, "balance")
	}
	account.Balance = balance

	e := effect(ctx, t)
	e.Order, e.Amount = trim(t.Order), int64(t.Amount)
	return b.ledger.Write(ctx, &account, e)
}
