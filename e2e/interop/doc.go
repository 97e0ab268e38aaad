// Package interop holds tests only: other programs' lock libraries and package
// lock exclude one another on the same key, on a real Redis. It is a module of
// its own, so that those libraries stay out of the requirements of Siding.
//
// The key of a resource is lock.Config.Prefix followed by its name. That, and the
// plain protocol (SET key random NX PX, then compare-and-delete), is all that
// the programs have to agree on.
package interop
