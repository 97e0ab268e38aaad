package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A pipe speaks the DevTools protocol with a browser: messages in JSON, each with a zero byte
// behind it.
type pipe struct {
	out   io.WriteCloser
	event func(session, method string, params json.RawMessage)
	ended chan struct{} // closed once the browser has closed its end

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// newPipe returns a pipe that reads in until in ends. The caller must close out. Each event goes
// to the function event, one after the other.
func newPipe(in io.Reader, out io.WriteCloser, event func(session, method string, params json.RawMessage)) *pipe {
	p := &pipe{out: out, event: event, ended: make(chan struct{}), waiting: map[int]chan message{}}
	go p.read(bufio.NewReader(in))
	return p
}

func (p *pipe) read(in *bufio.Reader) {
	defer close(p.ended)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimRight(text, "\x00"), &m) != nil {
			continue // a message that nobody waits for
		}
		if m.ID == 0 {
			p.event(m.Session, m.Method, m.Params)
			continue
		}
		p.mu.Lock()
		reply := p.waiting[m.ID]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		if reply != nil {
			reply <- m
		}
	}
}

// call sends a command to a session, or to the browser if session is empty. It stores the result
// in the variable that result points to, unless result is nil.
func (p *pipe) call(ctx context.Context, session, method string, params map[string]any, result any) error {
	reply := make(chan message, 1)
	p.mu.Lock()
	p.last++
	id := p.last
	p.waiting[id] = reply
	err := json.NewEncoder(terminated{p.out}).Encode(map[string]any{"id": id, "sessionId": session, "method": method, "params": params})
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m := <-reply:
		switch {
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-p.ended:
		return fmt.Errorf("%s: %w", method, errGone)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

var errGone = errors.New("the browser has ended")

// terminated replaces the line feed behind a message by a zero byte.
type terminated struct{ io.Writer }

func (w terminated) Write(p []byte) (int, error) {
	return w.Writer.Write(append(bytes.TrimRight(p, "\n"), 0))
}
