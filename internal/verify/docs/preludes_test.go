package docs_test

// imported has the packages that a block may name without an import, by their names there.
var imported = map[string]string{
	"context":  "context",
	"errors":   "errors",
	"fmt":      "fmt",
	"os":       "os",
	"signal":   "os/signal",
	"slog":     "log/slog",
	"sql":      "database/sql",
	"syscall":  "syscall",
	"synctest": "testing/synctest",
	"testing":  "testing",
	"time":     "time",

	"asynq":    "github.com/hibiken/asynq",
	"clientv3": "go.etcd.io/etcd/client/v3",
	"pgx":      "github.com/jackc/pgx/v5",

	"goredis":   "github.com/go-redsync/redsync/v4/redis/goredis/v9",
	"redislock": "github.com/bsm/redislock",
	"redsync":   "github.com/go-redsync/redsync/v4",
	"redis":     "github.com/redis/go-redis/v9",

	"etcdlock":   "github.com/sidingq/siding/lock/etcdlock",
	"inspect":    "github.com/sidingq/siding/inspect",
	"ledger":     "github.com/sidingq/siding/tasks/ledger",
	"lock":       "github.com/sidingq/siding/lock",
	"locktest":   "github.com/sidingq/siding/lock/locktest",
	"queue":      "github.com/sidingq/siding/queue",
	"queueotel":  "github.com/sidingq/siding/queue/queueotel",
	"queuetest":  "github.com/sidingq/siding/queue/queuetest",
	"redisfence": "github.com/sidingq/siding/lock/redisfence",
	"redlock":    "github.com/sidingq/siding/lock/redlock",
	"sqlfence":   "github.com/sidingq/siding/lock/sqlfence",
	"worker":     "github.com/sidingq/siding/worker",
}

// What many pages take for granted.
const (
	locks   = "var ctx context.Context; var rdb redis.UniversalClient; var locker *lock.Locker\n"
	servers = "var ctx context.Context; var rdb redis.UniversalClient; var redisOpt asynq.RedisConnOpt; var mux *asynq.ServeMux\n"
	orderOf = "func orderOf(payload []byte) (string, error) { panic(0) }\n"
	audited = "type AuditOrder struct{ Order string }\n" +
		"func (AuditOrder) Kind() string { panic(0) }\n" +
		"func (AuditOrder) Resource() string { panic(0) }\n"
)

// preludes declares, by page, what the code of that page takes for granted. A key such as "page.md#2" is for
// the second block of a page alone.
var preludes = map[string]string{
	example: locks,

	"README.md": servers + orderOf + `
func audit(ctx context.Context, order string, fence int64) error { panic(0) }
func ship(ctx context.Context, fence int64) error { panic(0) }
`,
	"docs/guides/batches.md": `
var server *queue.Server
type Credit struct{ Cents int }
func (Credit) Kind() string { panic(0) }
func (Credit) Resource() string { panic(0) }
func book(context.Context, []*queue.BatchTask[Credit]) error { panic(0) }
`,
	"docs/guides/fencing.md": "var ctx context.Context; var tx *sql.Tx; var conn *pgx.Conn; var stock sqlfence.Table; var rdb *redis.Client\n",
	"docs/guides/from-redislock.md": "var ctx context.Context; var client *redis.Client; var clients []*redis.Client; var locks *lock.Locker\n" +
		"func work(context.Context) error { panic(0) }\n",
	"docs/guides/limits.md": servers + "var locker *lock.Locker; func call(context.Context) error { panic(0) }\n",
	"docs/guides/lock.md":   locks,
	"docs/guides/policies.md": servers + `
var client *queue.Client
var task queue.Task
`,
	"docs/guides/stores.md": servers + "var etcdClient *clientv3.Client\n",
	"docs/guides/tasks.md": servers + `
var client *queue.Client
var server *queue.Server
var task queue.Task
type ShipOrder struct{ Order string }
func (ShipOrder) Kind() string { panic(0) }
`,
	"docs/guides/testing.md": audited + `
func audit(ctx context.Context, t AuditOrder) error { panic(0) }
func checkout(ctx context.Context, client interface {
	Enqueue(ctx context.Context, t queue.Task, opts *queue.Options) (queue.Receipt, error)
}, order string) error { panic(0) }
`,
	"docs/guides/tracing.md": `
var ctx context.Context
var opt asynq.RedisConnOpt
var telemetry *queueotel.Telemetry
var client *queue.Client
var payload []byte
type ShipOrder struct{ Order string }
func (ShipOrder) Kind() string { panic(0) }
func (ShipOrder) Resource() string { panic(0) }
`,

	"lock/locker.go":         locks + "var client *redis.Client\n",
	"lock/etcdlock/doc.go":   "var ctx context.Context; var endpoints []string\n",
	"lock/redisfence/doc.go": "var ctx context.Context; var rdb redis.UniversalClient\n",
	"lock/redlock/doc.go":    "var ctx context.Context; var clients []*redis.Client\n",
	"lock/sqlfence/doc.go":   "var ctx context.Context; var tx *sql.Tx\n",
	"queue/doc.go":           servers + "var server *queue.Server; var stock string\n",
	"queue/queueotel/doc.go": `
var ctx context.Context
var opt asynq.RedisConnOpt
var client *queue.Client
type ShipOrder struct{ Order string }
func (ShipOrder) Kind() string { panic(0) }
func (ShipOrder) Resource() string { panic(0) }
`,
	"queue/queueotel/enqueue.go": "var ctx context.Context; var kind string; var payload []byte; var telemetry *queueotel.Telemetry\n",
	"tasks/ledger/doc.go": `
var ctx context.Context
var l *ledger.Ledger
var sku string
var opening int64
var effect ledger.Effect
`,
	"worker/worker.go": audited + "func audit(ctx context.Context, t AuditOrder) error { panic(0) }\n",
}
