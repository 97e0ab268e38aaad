package asynqdiff

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// snapshot notes what is in Redis at a moment of the play. Servers and workers are left out, as asynq writes
// those at its heartbeats, which may come before or after.
func (r *rig) snapshot(title string) {
	r.t.Helper()
	r.snapshots = append(r.snapshots, r.look(title, false)...)
}

// snapshotServers is snapshot with servers and workers.
func (r *rig) snapshotServers(title string) {
	r.t.Helper()
	r.snapshots = append(r.snapshots, r.look(title, true)...)
}

// look returns what is in Redis, and what Inspector says of it.
func (r *rig) look(title string, servers bool) []string {
	r.t.Helper()
	keys, err := r.redis.Keys(r.t.Context(), "*").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	var blocks []string
	for _, key := range keys {
		ours := strings.HasPrefix(key, "siding")
		server := strings.HasPrefix(key, "asynq:servers") || strings.HasPrefix(key, "asynq:workers")
		if !ours && (servers || !server) {
			blocks = append(blocks, r.plain(text(r.key(key))))
		}
	}
	slices.Sort(blocks)
	lines := append([]string{"# Redis " + title}, blocks...)
	lines = append(lines, "# Inspector "+title)
	lines = append(lines, r.inspected()...)
	if servers {
		lines = append(lines, r.inspectedServers()...)
	}
	return lines
}

// key returns a key as text: its name, its contents, and when it expires.
func (r *rig) key(key string) []string {
	r.t.Helper()
	ctx := r.t.Context()
	kind := r.redis.Type(ctx, key).Val()
	title := key + " (" + kind
	if ttl := r.redis.PTTL(ctx, key).Val(); ttl > 0 {
		title += ", expires " + r.when(key, ttl)
	}
	lines := []string{title + ")"}
	add := func(format string, args ...any) { lines = append(lines, "    "+fmt.Sprintf(format, args...)) }
	switch kind {
	case "string":
		value := r.redis.Get(ctx, key).Val()
		switch {
		case strings.HasPrefix(key, "asynq:servers:"): // Inspector shows it
		case strings.HasSuffix(key, ":paused"):
			add("%s", unix(value))
		default:
			add("%s", short([]byte(value)))
		}
	case "list":
		for _, id := range r.redis.LRange(ctx, key, 0, -1).Val() {
			add("%s", id)
		}
	case "set":
		members := r.redis.SMembers(ctx, key).Val()
		slices.Sort(members)
		for _, member := range members {
			add("%s", member)
		}
	case "zset":
		for _, line := range r.zset(key) {
			add("%s", line)
		}
	case "hash":
		fields := r.redis.HGetAll(ctx, key).Val()
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			// When a task became pending is read of pending tasks only. A step saves the call that would delete it.
			if !strings.HasPrefix(name, "siding_") && (name != "pending_since" || fields["state"] == "pending") {
				add("%s = %s", name, field(key, name, fields[name]))
			}
		}
	default:
		add("of an unknown type")
	}
	return lines
}

// zset returns the members of a sorted set. A big one is summed up.
func (r *rig) zset(key string) []string {
	all := r.redis.ZRangeWithScores(r.t.Context(), key, 0, -1).Val()
	lines := make([]string, len(all))
	for i, z := range all {
		at := time.UnixMilli(int64(z.Score * 1000))
		lines[i] = fmt.Sprintf("%s %s", r.plain(fmt.Sprint(z.Member)), r.when(key, time.Until(at)))
	}
	slices.Sort(lines)
	if n := len(lines); n > 20 {
		return []string{fmt.Sprintf("%d members", n), lines[0], lines[n-1]}
	}
	return lines
}

// field returns the value of a hash's field as text.
func field(key, name, value string) string {
	switch {
	case strings.HasPrefix(key, "asynq:workers:"):
		return "a worker" // Inspector shows it
	case name == "pending_since":
		ns, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return err.Error()
		}
		return when(time.Until(time.Unix(0, ns)))
	case name == "msg":
		return message([]byte(value))
	default:
		return short([]byte(value))
	}
}

// message returns an encoded task as text.
func message(encoded []byte) string {
	m, err := taskredis.DecodeMessage(encoded)
	if err != nil {
		return fmt.Sprintf("unreadable: %x", encoded)
	}
	text := fmt.Sprintf("type %q payload %s headers %s id %q queue %q retry %d retried %d error %s failed %s timeout %v deadline %s"+
		" unique %q group %q retention %v completed %s", m.Type, short(m.Payload), named(m.Headers), m.ID, m.Queue, m.Retry, m.Retried,
		short([]byte(m.ErrorMsg)), unixOrNever(m.LastFailedAt), time.Duration(m.Timeout)*time.Second, unixOrNever(m.Deadline),
		m.UniqueKey, m.GroupKey, time.Duration(m.Retention)*time.Second, unixOrNever(m.CompletedAt))
	if rest := len(encoded) - len(known(m).Encode()); rest != 0 {
		text += fmt.Sprintf(" and %d bytes more", rest)
	}
	return text
}

// known returns a message without fields that are not known.
func known(m *taskredis.Message) *taskredis.Message {
	return &taskredis.Message{
		Type: m.Type, Payload: m.Payload, Headers: m.Headers, ID: m.ID, Queue: m.Queue, Retry: m.Retry, Retried: m.Retried,
		ErrorMsg: m.ErrorMsg, LastFailedAt: m.LastFailedAt, Timeout: m.Timeout, Deadline: m.Deadline, UniqueKey: m.UniqueKey,
		GroupKey: m.GroupKey, Retention: m.Retention, CompletedAt: m.CompletedAt,
	}
}

// inspected returns what Inspector says of the queues and the tasks.
func (r *rig) inspected() []string {
	r.t.Helper()
	queues, err := r.inspect.Queues()
	if err != nil {
		r.t.Fatal(err)
	}
	lines := []string{}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, queue := range slices.Sorted(slices.Values(queues)) {
		q, err := r.inspect.GetQueueInfo(queue)
		if err != nil {
			add("queue %q: %v", queue, err)
			continue
		}
		add("queue %q: size %d, pending %d, active %d, scheduled %d, retry %d, archived %d, completed %d, aggregating %d in %d groups,"+
			" processed %d of %d, failed %d of %d, paused %t, waits %t", q.Queue, q.Size, q.Pending, q.Active, q.Scheduled, q.Retry,
			q.Archived, q.Completed, q.Aggregating, q.Groups, q.Processed, q.ProcessedTotal, q.Failed, q.FailedTotal, q.Paused, q.Latency > 0)
		for _, list := range []struct {
			name    string
			ordered bool // those with scores may have equal ones
			list    func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error)
		}{
			{"pending", true, r.inspect.ListPendingTasks},
			{"active", true, r.inspect.ListActiveTasks},
			{"scheduled", false, r.inspect.ListScheduledTasks},
			{"retry", false, r.inspect.ListRetryTasks},
			{"archived", false, r.inspect.ListArchivedTasks},
			{"completed", false, r.inspect.ListCompletedTasks},
		} {
			tasks, err := list.list(queue)
			if err != nil {
				add("queue %q, %s: %v", queue, list.name, err)
			}
			infos := make([]string, len(tasks))
			for i, info := range tasks {
				infos[i] = fmt.Sprintf("queue %q, %s: %s", queue, list.name, shown(info))
			}
			if !list.ordered {
				slices.Sort(infos)
			}
			lines = append(lines, infos[:min(len(infos), 20)]...)
		}
		lines = append(lines, r.inspectedGroups(queue)...)
	}
	for _, t := range r.all() {
		if info, err := r.inspect.GetTaskInfo(t.queue(), r.id(t.key())); err != nil {
			add("task %s: %s", t.key(), says(err))
		} else {
			add("task %s: %s", t.key(), shown(info))
		}
	}
	return lines
}

func (r *rig) inspectedGroups(queue string) []string {
	groups, err := r.inspect.Groups(queue)
	if err != nil {
		return []string{fmt.Sprintf("queue %q, groups: %v", queue, err)}
	}
	var lines []string
	for _, group := range groups {
		lines = append(lines, fmt.Sprintf("queue %q, group %q: %d", queue, group.Group, group.Size))
		tasks, err := r.inspect.ListAggregatingTasks(queue, group.Group)
		if err != nil {
			lines = append(lines, err.Error())
		}
		for _, info := range tasks {
			lines = append(lines, fmt.Sprintf("queue %q, group %q: %s", queue, group.Group, shown(info)))
		}
	}
	slices.Sort(lines)
	return lines
}

// shown returns what Inspector says of a task.
func shown(i *asynq.TaskInfo) string {
	return fmt.Sprintf("%s of %q in %q is %v, payload %s, headers %s, retried %d of %d, error %s at %s, timeout %v, deadline %s, group %q,"+
		" next %s, orphaned %t, retention %v, completed %s, result %s", i.ID, i.Type, i.Queue, i.State, short(i.Payload), named(i.Headers),
		i.Retried, i.MaxRetry, short([]byte(i.LastErr)), moment(i.LastFailedAt), i.Timeout, moment(i.Deadline), i.Group,
		moment(i.NextProcessAt), i.IsOrphaned, i.Retention, moment(i.CompletedAt), short(i.Result))
}

// inspectedServers returns what Inspector says of the servers.
func (r *rig) inspectedServers() []string {
	r.t.Helper()
	lines := []string{}
	for _, s := range r.listed() {
		line := fmt.Sprintf("server %s at %s, process %d: concurrency %d, queues %v, strict %t, started %s, %s", s.ID, s.Host, s.PID,
			s.Concurrency, s.Queues, s.StrictPriority, moment(s.Started), s.Status)
		workers := []string{}
		for _, w := range s.ActiveWorkers {
			workers = append(workers, fmt.Sprintf("\n    worker %s of %q in %q, payload %s, started %s, deadline %s", w.TaskID, w.TaskType,
				w.Queue, short(w.TaskPayload), moment(w.Started), moment(w.Deadline)))
		}
		slices.Sort(workers)
		lines = append(lines, line+strings.Join(workers, ""))
	}
	slices.Sort(lines)
	return lines
}

// A lease lasts 30 s at most, and an entry of a server 10 s.
const (
	leaseLasts  = 30 * time.Second
	serverLasts = 10 * time.Second
)

// when returns how far a moment of a key is from now.
func (r *rig) when(key string, d time.Duration) string {
	switch {
	case strings.HasSuffix(key, ":lease") && d > 0 && d <= leaseLasts:
		return "within a lease"
	case (strings.HasPrefix(key, "asynq:servers") || strings.HasPrefix(key, "asynq:workers")) && d > 0 && d <= serverLasts:
		return "within 10s"
	}
	return when(d)
}

// when returns how far a moment is from now, in minutes, rounded up: a snapshot comes some time after what it shows.
// So the times of scenarios are whole minutes.
func when(d time.Duration) string {
	minutes := int(math.Ceil(d.Minutes()))
	if minutes == 0 {
		return "now"
	}
	return fmt.Sprintf("%+dm", minutes)
}

// moment is when for a time, which may not be set.
func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return when(time.Until(t))
}

func unixOrNever(seconds int64) string {
	if seconds == 0 {
		return "never"
	}
	return when(time.Until(time.Unix(seconds, 0)))
}

func unix(text string) string {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err.Error()
	}
	return unixOrNever(seconds)
}

// short quotes a text. Of a long one it has the beginning and a sum.
func short(text []byte) string {
	const limit = 300
	switch {
	case text == nil:
		return "nil"
	case len(text) <= limit:
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q... (%d bytes, %x)", text[:20], len(text), sha256.Sum256(text))
}

// named returns headers as text.
func named(headers map[string]string) string {
	if headers == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", headers)
}

var (
	uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	day  = regexp.MustCompile(`(processed|failed):\d{4}-\d{2}-\d{2}`)
)

// plain takes out of a text what differs between two runs.
func (r *rig) plain(text string) string {
	text = strings.ReplaceAll(text, r.suffix(), "")
	text = uuid.ReplaceAllString(text, "<uuid>")
	return day.ReplaceAllString(text, "$1:<today>")
}
