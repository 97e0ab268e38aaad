package tasks

import (
	"context"
	"math"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks/ledger"
)

// TransferBalance moves a sum from one customer's balance to another's, or declines to when the first is too small.
type TransferBalance struct {
	// From and To are two accounts.
	From string `json:"from"`
	To   string `json:"to"`
	// Cents is the sum in hundredths of a pound, at least 1.
	Cents int64 `json:"cents"`
}

// Kind returns "balance:transfer".
func (TransferBalance) Kind() string { return "balance:transfer" }

// Resource returns "account:" and the customer, of both accounts.
func (t TransferBalance) Resource() string {
	return queue.AllOf("account:"+trim(t.From), "account:"+trim(t.To))
}

// Validate refuses bad identifiers, an account's transfer to itself, and a sum out of range.
func (t TransferBalance) Validate() error {
	c := checker{kind: t.Kind()}
	c.identifier("from", t.From)
	c.identifier("to", t.To)
	if trim(t.From) == trim(t.To) {
		c.refuse("to", "is the account that the sum comes from")
	}
	if most := int64(math.MaxInt64 / cent); t.Cents < 1 || t.Cents > most {
		c.refuse("cents", "want 1 to %d", most)
	}
	return c.err
}

func (t TransferBalance) run(ctx context.Context, b *Book) error {
	from, to := ledger.Account{Customer: trim(t.From)}, ledger.Account{Customer: trim(t.To)}
	if err := b.read(ctx, &from, &to); err != nil {
		return err
	}
	amount := t.Cents * cent
	if from.Balance < amount {
		from.Declined++
	} else {
		balance, ok := Money(to.Balance).Plus(Money(amount))
		if !ok {
			return outOfRange(t, "balance")
		}
		from.Balance -= amount
		to.Balance = int64(balance)
	}
	// Also a transfer that is declined writes both: the journal knows all of a task by its id.
	debit, credit := effect(ctx, t), effect(ctx, t)
	debit.Amount, credit.Amount = amount, -amount
	return b.ledger.WriteAll(ctx, ledger.Change{Row: &from, Effect: debit}, ledger.Change{Row: &to, Effect: credit})
}
