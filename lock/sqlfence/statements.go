package sqlfence

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Dialect is how a database writes names and placeholders, locks a row that it reads, and counts
// the rows of an update.
type Dialect int

// The dialects.
const (
	SQLite     Dialect = iota + 1
	PostgreSQL         // for pgx too
	MySQL              // MariaDB too; the table's engine must have transactions, as InnoDB has
)

// String returns the name of the constant.
func (d Dialect) String() string {
	switch d {
	case SQLite:
		return "SQLite"
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	default:
		return fmt.Sprintf("Dialect(%d)", int(d))
	}
}

// statements returns the statement that compares and raises in one, and the query that tells why
// the statement touched no row. The statement takes the fence, the key's values, and the fence
// again. The query takes the key's values. It returns how many rows there are, and the fence.
func (t Table) statements() (update, query string, err error) {
	if t.Dialect < SQLite || t.Dialect > MySQL {
		return "", "", fmt.Errorf("%w: dialect: want SQLite, PostgreSQL or MySQL, have %v", ErrTable, t.Dialect)
	}
	table, err := t.Dialect.quote("name", strings.Split(t.Name, ".")...)
	if err != nil {
		return "", "", err
	}
	fence, err := t.Dialect.quote("fence", cmp.Or(t.Fence, "fence"))
	if err != nil {
		return "", "", err
	}
	if len(t.Key) == 0 {
		return "", "", fmt.Errorf("%w: key of %s: want a column or several, have none", ErrTable, t.Name)
	}
	var keys []string
	for _, name := range t.Key {
		column, err := t.Dialect.quote("key", name)
		if err != nil {
			return "", "", err
		}
		keys = append(keys, column)
	}
	update = "UPDATE " + table + " SET " + fence + " = " + t.Dialect.placeholder(1) + " WHERE " + t.Dialect.equal(keys, 2) +
		" AND " + fence + " <= " + t.Dialect.placeholder(len(keys)+2)
	query = "SELECT count(*), max(" + fence + ") FROM " + table + " WHERE " + t.Dialect.equal(keys, 1)
	if t.Dialect == MySQL {
		// An UPDATE counts the rows that it changes, unless the connection has clientFoundRows: with the same fence again none,
		// as with a stale one, and this query tells the two apart. A plain SELECT would read the row as it was when the
		// transaction began, in which a former holder still sees its own fence.
		query += " FOR UPDATE"
	}
	return update, query, nil
}

// quote returns an identifier of the parts of a name. In double quotes SQLite would take a column
// that is not there for a text, and so for a key that no row has.
func (d Dialect) quote(what string, parts ...string) (string, error) {
	mark := "`"
	if d == PostgreSQL {
		mark = `"`
	}
	for _, part := range parts {
		if part == "" || strings.ContainsAny(part, "`\"\x00") {
			return "", fmt.Errorf("%w: %s: want a name without quotes, have %q", ErrTable, what, strings.Join(parts, "."))
		}
	}
	return mark + strings.Join(parts, mark+"."+mark) + mark, nil
}

// equal returns the condition that columns have the values of the placeholders from first on.
func (d Dialect) equal(columns []string, first int) string {
	conditions := make([]string, len(columns))
	for i, column := range columns {
		conditions[i] = column + " = " + d.placeholder(first+i)
	}
	return strings.Join(conditions, " AND ")
}

func (d Dialect) placeholder(n int) string {
	switch d {
	case PostgreSQL:
		return "$" + strconv.Itoa(n)
	case MySQL:
		return "?"
	default:
		return "?" + strconv.Itoa(n)
	}
}
