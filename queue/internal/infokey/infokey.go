// Package infokey has the key under which a context carries what queue.InfoFrom returns, for
// queue and queuetest.
package infokey

// Key is the key.
type Key struct{}
