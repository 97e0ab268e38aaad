package mysqltest_test

import (
	"database/sql"
	"testing"

	"github.com/sidingq/siding/internal/testenv/mysqltest"
)

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	for range 2 {
		db, err := sql.Open("mysql", mysqltest.Database(t).FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		// The table would be there already in the second round if both were one database.
		if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (n BIGINT)"); err != nil {
			t.Fatal(err)
		}
	}
}
