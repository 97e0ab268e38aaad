package ledger

// IsUnavailable is for tests.
var IsUnavailable = isUnavailable
