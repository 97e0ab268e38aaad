// Package lockpage serves the Locks pages of a worker's web server: who holds which resource, who
// waits, why a task does not run, and charts of the last 15 minutes.
//
// The pages are made on the server and work without JavaScript. A small script renews them every
// two seconds while they are visible, and adds keys. They load nothing from other servers, and a
// Content-Security-Policy forbids it. Names of resources and tasks may hold any text: they are
// parameters of the query, never parts of a path, and html/template escapes them.
//
// The charts of hand-offs and of refusals show what this worker has seen, see [History]. The charts
// of waiting tasks and of the hottest resources show the whole fleet. The worker asks Redis for them
// every 5 s, but only until 15 minutes after somebody has last looked: many workers have
// these pages, and few are looked at.
//
// Package lockpage does no authentication: its caller puts a login and the protection against other
// sites before it.
package lockpage
