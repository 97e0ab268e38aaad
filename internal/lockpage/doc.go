// Package lockpage serves the Locks pages of a worker's web server: who holds which resource, who
// waits, and why a task does not run.
//
// The pages are made on the server and work without JavaScript. A script adds keys, and asks for a visible page again every
// second. The pages load nothing from other servers, which a
// Content-Security-Policy forbids. Names of resources and tasks may hold any text: they are
// parameters of the query, never parts of a path, and html/template escapes them.
//
// It also serves the typeface, and the script that links asynq's dashboard with its pages.
//
// Package lockpage asks for no login. Its caller puts a login, and the protection against requests
// of other sites, before the pages.
package lockpage
