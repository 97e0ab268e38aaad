// Package dashboard serves what a worker shows over HTTP: the asynq dashboard
// under [RootPath], and the probes /healthz and /readyz.
//
// The dashboard can delete and run tasks and has no passwords. So it is meant
// for a loopback address, and guards that against the browser: requests that
// another site makes a visitor's browser send are refused, and so are host names
// other than localhost (a site can point its own name at 127.0.0.1). Bound to
// another address it is open to whoever reaches that; put a proxy before it.
//
// Its pages load nothing from the internet: the fonts that asynqmon's page asks
// a public server for are taken out, and a Content-Security-Policy forbids the
// rest. The page's icons are drawings in its script, so nothing is missing but a
// typeface.
package dashboard
