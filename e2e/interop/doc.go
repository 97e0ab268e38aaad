// Package interop has only tests. Other programs' lock libraries and package lock exclude one
// another on the same key, on a real Redis. The package is a module of its own, so that Siding does
// not require those libraries.
//
// The key of a resource is lock.Config.Prefix followed by its name. The programs must agree on that
// and on the plain protocol: SET key random NX PX, then compare-and-delete.
package interop
