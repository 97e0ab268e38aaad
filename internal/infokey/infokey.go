// Package infokey has the key under which a context carries what queue.InfoFrom returns, for
// queue, for queuetest, and for programs that run handlers of Siding on another server.
package infokey

// Key is the key.
type Key struct{}
