package ledger_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a connection or a goroutine outlives its ledger.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
