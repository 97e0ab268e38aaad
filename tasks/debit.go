package tasks

import (
	"context"
)

// KindDebitBalance is the kind of [DebitBalance].
const KindDebitBalance = "balance:debit"

// DebitBalance takes the amount of one order from a customer's balance, which
// opens at zero and may go below it.
type DebitBalance struct {
	// Customer is the account. Never empty: all orders without a customer would
	// otherwise wait for one lock and write to one account.
	Customer string `json:"customer"`
	// Order is the order's number.
	Order string `json:"order"`
	// Amount is what to take; a negative one is a credit. Never zero.
	Amount Money `json:"amount"`
}

// Kind returns "balance:debit".
func (DebitBalance) Kind() string { return KindDebitBalance }

// Resource returns "account:" and the customer.
func (t DebitBalance) Resource() string { return "account:" + trim(t.Customer) }

// Validate refuses bad identifiers and an amount of zero.
func (t DebitBalance) Validate() error {
	c := checker{kind: KindDebitBalance}
	c.identifier("customer", t.Customer)
	c.identifier("order", t.Order)
	if t.Amount == 0 {
		c.refuse("amount", "is zero")
	}
	return c.err
}

// DebitBalance runs the debit t.
func (b *Book) DebitBalance(ctx context.Context, t DebitBalance) error {
	account, err := b.ledger.ReadAccount(ctx, trim(t.Customer))
	if err != nil {
		return err
	}
	if err := b.think(ctx); err != nil {
		return err
	}
	balance, ok := subtract(account.Balance, int64(t.Amount))
	if !ok {
		return outOfRange(t, "balance")
	}
	account.Balance = balance

	e := effect(ctx, t)
	e.Order, e.Amount = trim(t.Order), int64(t.Amount)
	return settle(b.ledger.WriteAccount(ctx, account, e))
}
