// Package dashboard serves what a worker shows over HTTP: the asynq dashboard
// under [RootPath], and the probes /healthz and /readyz.
//
// The dashboard can delete and run tasks and shows what is in them. On a loopback
// address it may do without a password. It is guarded against the browser then:
// requests that another site makes a visitor's browser send are refused, and so
// are host names other than localhost (a site can point its own name at
// 127.0.0.1). Bound to another address it needs a password, for which it asks by
// HTTP Basic authentication. A browser adds that to what other sites make it
// send, too, so these are refused all the same. The probes are open to all, but
// the reason why a worker is not ready is not.
//
// A name of a queue, or an id of a task, that a browser would fold in a URL is shown with a
// mark (U+FFFD) in it, and requests for such names are refused: a click on one cannot reach
// anything else. Select such tasks by other means, such as asynq's command line.
//
// There is no TLS: over a network that others can read, put a proxy before it.
//
// Its pages load nothing from the internet: the fonts that asynqmon's page asks
// a public server for are taken out, and a Content-Security-Policy forbids the
// rest. The page's icons are drawings in its script, so nothing is missing but a
// typeface.
package dashboard
