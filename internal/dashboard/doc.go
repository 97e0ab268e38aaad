// Package dashboard serves a worker's pages over HTTP: the asynq dashboard under [RootPath], the
// Locks pages under [lockpage.RootPath], the probes /healthz and /readyz, and metrics.
//
// The dashboard can delete and run tasks, and shows their payloads. On a loopback address it may
// have no password. The dashboard then refuses requests that another site makes a visitor's browser
// send. It also refuses host names other than localhost, as a site can point its own name at
// 127.0.0.1. On another address the dashboard needs a password, and asks for it by HTTP Basic
// authentication. A browser adds the password to requests that other sites cause, so the dashboard
// refuses these as well. The probes need no password, but hide the reason why a worker is not
// ready.
//
// A browser folds some names of queues and ids of tasks in a URL. The dashboard shows such a name
// with a mark (U+FFFD) in it, and refuses requests for such names. So a click on one reaches
// nothing else. Select such tasks by other means, such as asynq's command line.
//
// There is no TLS. On a network that others can read, put a proxy before the dashboard.
//
// The pages load nothing from the internet: a Content-Security-Policy forbids it. asynqmon's page
// wants the typeface Roboto from a public server, and gets the typeface from this one. The page's
// icons are drawings in its script.
package dashboard
