package locktest_test

import (
	"errors"
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timedOut reports whether err says that no answer came in time. The context's clock or the
// connection's may say so, as the two end at the same moment.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
