package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// victim is the id of an archived task that nobody clicks on.
const victim = "innocent"

// archive returns a handler on a Redis with archived tasks of these ids in the queue default. It
// also returns a client.
func archive(t *testing.T, ids ...string) (*dashboard.Handler, redis.UniversalClient) {
	t.Helper()
	opts, rdb := start(t)
	for _, id := range ids {
		enqueue(t, rdb, "", asynq.TaskID(id))
		expect.OK(t, asynq.NewInspectorFromRedisClient(rdb).ArchiveTask("default", id))
	}
	return open(t, dashboard.Config{Redis: opts}), rdb
}

// names returns what the page gets under a key of each element of a list.
func names(t *testing.T, h http.Handler, path, list, key string) []string {
	t.Helper()
	var lists map[string]json.RawMessage
	var elements []map[string]any
	text := ask(t, h, http.MethodGet, path).Body.Bytes()
	if err := json.Unmarshal(text, &lists); err != nil {
		t.Fatalf("%s: %v in %s", path, err, text)
	}
	if err := json.Unmarshal(lists[list], &elements); err != nil {
		t.Fatalf("%s: %v in %s", path, err, text)
	}
	var all []string
	for _, element := range elements {
		all = append(all, fmt.Sprint(element[key]))
	}
	return all
}

// click sends what a browser makes of a URL into which the page has put a name as it is.
func click(t *testing.T, h http.Handler, method, written string) {
	t.Helper()
	page := &url.URL{Scheme: "http", Host: "localhost:8080", Path: "/dashboard/"}
	written = strings.NewReplacer(`\`, "/", "\t", "").Replace(strings.TrimSpace(written))
	target := expect.Value(page.Parse(written))(t)
	reply := ask(t, h, method, target.RequestURI())
	for reply.Code == http.StatusTemporaryRedirect || reply.Code == http.StatusPermanentRedirect {
		reply = ask(t, h, method, reply.Header().Get("Location"))
	}
}

// wantVictim fails unless the task that nobody clicked on is still there.
func wantVictim(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	if _, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", victim); err != nil {
		t.Errorf("want the other task left alone, have %v", err)
	}
}

func TestClickOnATaskWhoseIDABrowserFolds(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"../archived_tasks:delete_all", `..\archived_tasks:delete_all`, "..%2farchived_tasks:delete_all", "%2e%2e/archived_tasks:delete_all",
		"x/../../archived_tasks:delete_all?", "innocent?", "innocent#x", "x/../innocent", "./innocent", "innocent ", "innocent\t", "..", ".",
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			h, rdb := archive(t, victim, id)
			list := "/dashboard/api/queues/default/archived_tasks"
			have := names(t, h, list, "tasks", "id")
			expect.That(t, len(have) == 2 && !slices.Contains(have, id), "want two tasks and the id changed, have %q", have)
			for _, id := range have {
				if id != victim {
					click(t, h, http.MethodDelete, list+"/"+id)
				}
			}
			wantVictim(t, rdb)
		})
	}
}

func TestClickOnAQueueWhoseNameABrowserFolds(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"default/archived_tasks:delete_all", "x/../default/archived_tasks:delete_all", "default%2farchived_tasks:delete_all", "default/archived_tasks/innocent?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, rdb := archive(t, victim)
			enqueue(t, rdb, "", asynq.Queue(name))
			have := names(t, h, "/dashboard/api/queues", "queues", "queue")
			expect.That(t, len(have) == 2 && !slices.Contains(have, name), "want two queues and the name changed, have %q", have)
			for _, queue := range have {
				if queue != "default" {
					click(t, h, http.MethodDelete, "/dashboard/api/queues/"+queue)
				}
			}
			wantVictim(t, rdb)
		})
	}
}

// A path that is not clean reaches nothing, however it came about. Nor does its sender get a
// redirect to the clean one.
func TestFoldedPathsAreRefused(t *testing.T) {
	t.Parallel()
	h, rdb := archive(t, victim)
	const tasks = "/dashboard/api/queues/default/archived_tasks"
	for _, path := range []string{
		tasks + "/../archived_tasks:delete_all", tasks + "/%2e%2e/archived_tasks:delete_all", tasks + "/..%2Farchived_tasks:delete_all",
		"/dashboard/api/queues/default%2farchived_tasks:delete_all", "/dashboard/api//queues/default/archived_tasks:delete_all",
		tasks + "/..%5Carchived_tasks:delete_all", tasks + "/%EF%BF%BD",
	} {
		expect.Equal(t, path, ask(t, h, http.MethodDelete, path).Code, http.StatusBadRequest)
	}
	wantVictim(t, rdb)
}

// Names that mean nothing in a URL come through as they are, and the contents of a task stay as
// they are.
func TestPlainNamesAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	const id = "14:stock:deduct-5a_b.c~ü 7"
	h, rdb := archive(t, victim, id)
	enqueue(t, rdb, `{"id":"a/b"}`, asynq.TaskID("pending"))
	list := "/dashboard/api/queues/default/archived_tasks"
	if have := names(t, h, list, "tasks", "id"); !slices.Contains(have, id) {
		t.Errorf("want %q among the ids, have %q", id, have)
	}
	if have := names(t, h, "/dashboard/api/queues/default/pending_tasks", "tasks", "payload"); len(have) != 1 || !strings.Contains(have[0], "a/b") {
		t.Errorf("want the payload as it is, have %q", have)
	}
	expect.Equal(t, "deletion", ask(t, h, http.MethodDelete, list+"/"+url.PathEscape(id)).Code, http.StatusNoContent)
}
