package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/sqlfence"
)

// A Ledger records the effects of tasks in PostgreSQL, each once. The ledger refuses a fence below
// the highest that it has seen of the resource.
type Ledger struct{ db *sql.DB }

var resources = sqlfence.Table{Name: "resources", Key: []string{"name"}, Dialect: sqlfence.PostgreSQL}

// OpenLedger opens the database.
func OpenLedger(dsn string) (*Ledger, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	const conns = 5 // several fleets share a server whose limit is 100
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return &Ledger{db: db}, nil
}

// Close closes the connections.
func (l *Ledger) Close() error { return l.db.Close() }

// Create makes the tables, with a row for each resource.
func (l *Ledger) Create(ctx context.Context, names []string) error {
	_, err := l.db.ExecContext(ctx, `
		CREATE TABLE resources (name text PRIMARY KEY, fence bigint NOT NULL DEFAULT 0);
		CREATE TABLE effects (
			entry    bigserial PRIMARY KEY,
			task     text NOT NULL,
			resource text NOT NULL,
			fence    bigint NOT NULL
		);
		CREATE UNIQUE INDEX once ON effects (task);`)
	for _, name := range names {
		if err == nil {
			_, err = l.db.ExecContext(ctx, "INSERT INTO resources (name) VALUES ($1)", name)
		}
	}
	return err
}

// Record writes the effect of a task unless the ledger has it already. For a guarded task ctx
// carries the fence. The error is [lock.ErrStale] if the fence is too old.
func (l *Ledger) Record(ctx context.Context, task, resource string) (err error) {
	// A process that is stopped here must not lock the row for ever.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			err = errors.Join(err, rerr)
		}
	}()
	fence := lock.Fence(ctx, resource)
	if resource != "" {
		if err := resources.Advance(ctx, tx, fence, resource); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx,
		"INSERT INTO effects (task, resource, fence) VALUES ($1, $2, $3) ON CONFLICT (task) DO NOTHING", task, resource, fence)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// Effects returns all effects. Those of a resource are in the order of their commits, as its row
// was locked until then.
func (l *Ledger) Effects(ctx context.Context) ([]Effect, error) {
	rows, err := l.db.QueryContext(ctx, "SELECT task, resource, fence FROM effects ORDER BY entry")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var effects []Effect
	for rows.Next() {
		var e Effect
		if err := rows.Scan(&e.Task, &e.Resource, &e.Fence); err != nil {
			return nil, fmt.Errorf("effects: %w", err)
		}
		effects = append(effects, e)
	}
	return effects, rows.Err()
}
