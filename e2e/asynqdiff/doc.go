// Package asynqdiff compares servers with asynq's own. It has tests only.
//
// asynq is the oracle: a scenario runs on asynq.Server and on another server, the subject, each time on
// an empty database, and everything that can be seen afterwards has to be the same:
//
//   - what is in Redis: every key with its type, its contents, and when it expires;
//   - what asynq's Inspector says about it;
//   - what clients and operators were answered;
//   - what the handlers saw: task, headers, payload, values and deadline of the context, and how it ended;
//   - how the functions of the configuration were called, with what, and in which order.
//
// Logs are not compared, nor how long things take, nor how much memory a queue uses.
//
// A scenario (scenario_test.go) has tasks, each with what its handler does at each attempt, and a play:
// what clients, operators and failures do meanwhile. The rig (rig_test.go, server_test.go) is what plays are
// written with. The record (record_test.go) notes the calls. The snapshot (snapshot_test.go) writes the database
// down as text, so that two runs compare line by line. The other files are tables of scenarios.
//
// Two runs of one server must be equal as well. So times are noted from now and in minutes, and ids without
// what makes them unique. Keys and fields of Siding are left out, and nothing else is.
//
// A scenario that comes out differently on purpose says so in its field differs. On any subject but asynq's own
// server it must then really come out differently, and its play must end for both. This prints the table of them:
//
//	go test -v -run=TestDifferences ./e2e/asynqdiff
//
// To see what asynq does in a scenario, and how a subject differs:
//
//	go test -v -run='TestScenarios/an_error_is_retried$' ./e2e/asynqdiff
package asynqdiff
