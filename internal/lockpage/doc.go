// Package lockpage serves the Locks pages of a worker's web server: who holds which resource, who
// waits, why a task does not run, and charts of the last 15 minutes.
//
// The pages are made on the server and work without JavaScript. A script adds keys, and watches a visible page: the worker
// makes it anew every second, and sends it as an event if it has changed. The pages load nothing from other servers, which a
// Content-Security-Policy forbids. Names of resources and tasks may hold any text: they are
// parameters of the query, never parts of a path, and html/template escapes them.
//
// The charts of hand-offs and of refusals show what this worker has seen, see [History]. The charts
// of waiting tasks and of the hottest resources show the whole fleet. The worker reads these from
// Redis every 5 s, until nobody has looked at a page for 15 minutes.
//
// Package lockpage asks for no login. Its caller puts a login, and the protection against requests
// of other sites, before the pages.
package lockpage
