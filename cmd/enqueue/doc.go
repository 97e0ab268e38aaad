// Command enqueue stores tasks in Redis for Siding's workers.
//
//	enqueue task KIND --payload JSON|@FILE|-
//	enqueue stream [FILE|-]
//	enqueue orders FILE.csv[.gz]|-
//
// task enqueues one task and prints its id. It has a flag for each option of
// the queue: --queue, --id, --delay, --at, --unique, --retries, --timeout,
// --deadline and --retention.
//
//	enqueue task order:audit --payload '{"order":"536365"}'
//	enqueue task stock:deduct --payload @deduction.json --delay 90s --retries 0
//
// stream enqueues the tasks of JSON lines from a file or from stdin. Each line
// has a kind and a payload, and may have the options by the names of the flags:
//
//	{"kind":"order:audit","payload":{"order":"536365"},"queue":"critical","delay":"5s","retries":3}
//
// orders enqueues what an order file in the format of the public Online Retail
// data set asks for: an allocation of each line, a deduction for each line of
// goods, an audit of each order, and a debit for each order whose customer is
// known.
//
//	enqueue orders online_retail.csv.gz --dry-run
//
// All commands have these flags:
//
//	--config FILE  a configuration file, of which redis and shards are used; by default
//	               $SIDING_CONFIG, else config.yaml if it is there
//	--redis ADDR   host:port or redis[s]://[user@]host[:port][/db]; by default as
//	               $SIDING_REDIS_ADDRS or the file say, else 127.0.0.1:6379
//	--dry-run      check everything, connect to nothing
//	--json         print the result as one line of JSON
//	--quiet        show no progress bar; there is none unless stderr is a terminal
//
// The exit status is 0 when all is well, 1 after a fault, such as Redis that
// cannot be reached, and after an interrupt, 2 when the command line or a
// setting is wrong, and 3 when a task or some lines were refused. A bad line
// never stops the others; the report names it, with the reason.
//
// # Again, but nothing twice
//
// SIGINT and SIGTERM end the program behind the batch in hand. So does a Redis
// that goes away, within some seconds. The same command, run again, goes on
// where it stopped and enqueues nothing twice, by two means:
//
//   - A checkpoint in Redis says up to which line of a file everything has been
//     enqueued. It is saved after each batch of 100 tasks, under the hash of the
//     file's content and the queue, and kept for 30 days. A finished file that is
//     run again enqueues nothing; --restart forgets the checkpoint.
//   - The id of each task is made of that hash, the line and the kind. While Redis
//     has a task of an id, it accepts no other: a batch that was enqueued and whose
//     checkpoint was not saved is found to be there already.
//
// The second has a limit. If the program is killed (kill -9, power) between a
// batch and its checkpoint, and workers have finished tasks of that batch, and
// their retention (10 minutes with orders, unless --retention says otherwise)
// has passed before the next run, then these are enqueued a second time. They
// have the same ids, by which the journal of the ledger refuses the second
// effect.
//
// A file with other content is another file, so adding lines to one makes all
// of them new. Lines from stdin or a pipe have no checkpoint and, unless they
// bring one, no id that is the same the next time: give them ids.
package main
