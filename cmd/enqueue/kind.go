package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// A taskText is a task as text, without its options: the arguments of enqueue task, or fields of a line
// of a stream.
type taskText struct {
	Kind      string          `json:"kind"`
	Payload   json.RawMessage `json:"payload"`
	Resources names           `json:"resource"`
}

// names are those of a task's resources: in a line one text, or a list of texts.
type names []string

// UnmarshalJSON reads either.
func (n *names) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*n = slices.DeleteFunc(names{one}, func(name string) bool { return name == "" })
		return nil
	}
	if json.Unmarshal(text, (*[]string)(n)) != nil {
		return fmt.Errorf("resource: want a text or a list of texts, have %.80s", text)
	}
	return nil
}

// decode makes the task. A known kind checks its payload, and knows its resource: another one is
// refused. Any other kind needs a resource, and its payload may be any JSON but null.
func (t taskText) decode() (queue.Task, error) {
	if slices.Contains(tasks.Kinds(), t.Kind) {
		task, err := tasks.Decode(t.Kind, t.Payload)
		if err != nil {
			return nil, err
		}
		if want, have := task.Resource(), queue.AllOf(t.Resources...); len(t.Resources) > 0 && have != want {
			return nil, fmt.Errorf("%s: resource: want %.160q as its payload says, or none, have %.160q", t.Kind, store.Show(want), store.Show(have))
		}
		return task, nil
	}
	if t.Kind == "" {
		return nil, fmt.Errorf("kind: want one of %s, or one of your own, have nothing", strings.Join(tasks.Kinds(), ", "))
	}
	if len(t.Resources) == 0 {
		return nil, fmt.Errorf("resource: want one with the kind %.40q, which is none of %s, have nothing", t.Kind, strings.Join(tasks.Kinds(), ", "))
	}
	var value json.RawMessage
	if err := json.Unmarshal(t.Payload, &value); err != nil {
		return nil, fmt.Errorf("%.40s: payload: want JSON: %w", t.Kind, err)
	}
	if !utf8.Valid(value) {
		return nil, fmt.Errorf("%.40s: payload: want JSON: it is not UTF-8", t.Kind)
	}
	return foreignTask{t}, nil
}

// A foreignTask is of a kind that this program does not know.
type foreignTask struct{ text taskText }

func (t foreignTask) Kind() string     { return t.text.Kind }
func (t foreignTask) Resource() string { return queue.AllOf(t.text.Resources...) }

// MarshalJSON returns the payload.
func (t foreignTask) MarshalJSON() ([]byte, error) { return t.text.Payload.MarshalJSON() }
