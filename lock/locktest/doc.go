// Package locktest is for tests of programs that take locks.
//
// [Memory] keeps locks in memory and goes by the clock of package time, also the fake one of
// testing/synctest. There a test of what happens after a TTL takes no time. [Faulty] puts a network
// that fails in front of any store, and [Proxy] in front of any server. [Run] is the suite that
// every store has to pass, and [Smoke] its smallest part.
package locktest
