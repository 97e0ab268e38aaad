package lock

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Each script is one file with its own contract at the top.
var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
	//go:embed leave.lua
	leaveSource string

	acquireScript = redis.NewScript(acquireSource)
	renewScript   = redis.NewScript(renewSource)
	releaseScript = redis.NewScript(releaseSource)
	leaveScript   = redis.NewScript(leaveSource)
)

// What the lock's value looks like. Values of other programs look like neither.
const (
	heldPrefix     = "siding:"
	reservedPrefix = "siding-reserved:"
)

// keys are the Redis keys of one resource. The lock's own key has no braces,
// so all of it is hashed; the companions name it as their hash tag and
// so live in the same Redis Cluster slot.
type keys struct{ lock, grant, line string }

func (l *Locker) keys(resource string) keys {
	k := l.cfg.Prefix + resource
	return keys{lock: k, grant: "{" + k + "}:fence", line: "{" + k + "}:line"}
}

// holderOf describes the value of a lock that is not ours.
func holderOf(value string) (label string, foreign bool) {
	if rest, ok := strings.CutPrefix(value, heldPrefix); ok {
		_, label, _ = strings.Cut(rest, ":")
		return label, false
	}
	if strings.HasPrefix(value, reservedPrefix) {
		return "the next in line", false
	}
	return "another program", true
}

var errReply = errors.New("lock: unexpected reply of a script")

// reply reads the fields of a script's answer one after the other; the first
// that is not what is asked for is remembered in err.
type reply struct {
	fields []any
	err    error
}

func newReply(v any, err error) *reply {
	if err != nil {
		return &reply{err: err}
	}
	fields, ok := v.([]any)
	if !ok {
		return &reply{err: fmt.Errorf("%w: %T", errReply, v)}
	}
	return &reply{fields: fields}
}

func (r *reply) next() any {
	if r.err == nil && len(r.fields) == 0 {
		r.err = fmt.Errorf("%w: too short", errReply)
	}
	if r.err != nil {
		return nil
	}
	v := r.fields[0]
	r.fields = r.fields[1:]
	return v
}

func (r *reply) text() string {
	v := r.next()
	s, ok := v.(string)
	if r.err == nil && !ok {
		r.err = fmt.Errorf("%w: want text, have %T", errReply, v)
	}
	return s
}

// number reads an integer, which scripts send as such or, beyond the precision
// of Lua's own conversion, as digits.
func (r *reply) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("%w: %w", errReply, err)
		}
		return n
	default:
		if r.err == nil {
			r.err = fmt.Errorf("%w: want a number, have %T", errReply, v)
		}
		return 0
	}
}
