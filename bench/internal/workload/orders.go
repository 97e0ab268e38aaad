package workload

import (
	"errors"
	"fmt"
	"io"

	"github.com/sidingq/siding/tasks/orders"
)

// Orders has two kinds of tasks that do nothing, from an order file and in its order. There is one
// per line for the stock item, and one for each order, behind its lines. So many lines are read at
// most.
func Orders(file io.Reader, lines int) (Plan, error) {
	r, err := orders.NewReader(file)
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	order := ""
	end := func() {
		if order != "" {
			p.Tasks = append(p.Tasks, Task{Key: "order-" + order})
		}
	}
	for range lines {
		line, err := r.Next()
		var bad *orders.LineError
		switch {
		case errors.Is(err, io.EOF):
			end()
			p.Tasks = Numbered(p.Tasks)
			return p, nil
		case errors.As(err, &bad):
			continue
		case err != nil:
			return Plan{}, fmt.Errorf("orders: %w", err)
		}
		if line.Order != order {
			end()
			order = line.Order
		}
		p.Tasks = append(p.Tasks, Task{Key: "sku-" + line.SKU})
	}
	end()
	p.Tasks = Numbered(p.Tasks)
	return p, nil
}
