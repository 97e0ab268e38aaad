package redisstat

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"
)

// Sent counts the commands that clients send over connections that its Dial
// makes: Redis itself does not tell them from those inside scripts. The zero
// value is ready to use.
type Sent struct{ n atomic.Int64 }

// Dial fits the Dialer of go-redis.
func (s *Sent) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn, total: &s.n}, nil
}

// Count returns how many there were so far.
func (s *Sent) Count() int64 { return s.n.Load() }

// A countingConn follows what is written: commands as arrays of strings, in the
// format of Redis. One goroutine writes at a time, as go-redis does.
type countingConn struct {
	net.Conn

	total   *atomic.Int64
	line    []byte // the part of a line that has been seen
	strings int    // how many are to come of this command
	skip    int    // bytes to come of this string, with its line end
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.follow(p[:n])
	return n, err
}

func (c *countingConn) follow(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			p = p[n:]
			if c.skip -= n; c.skip == 0 {
				c.ended()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.line = append(c.line, p...)
			return
		}
		line := append(c.line, p[:end]...)
		c.header(bytes.TrimSuffix(line, []byte{'\r'}))
		c.line, p = c.line[:0], p[end+1:]
	}
}

// header takes in *<strings> or $<bytes>.
func (c *countingConn) header(line []byte) {
	if len(line) == 0 {
		return
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil: // not what a client sends
	case line[0] == '*':
		c.strings = n
	case line[0] == '$':
		c.skip = n + len("\r\n")
	}
}

// ended is the end of one string.
func (c *countingConn) ended() {
	if c.strings--; c.strings == 0 {
		c.total.Add(1)
	}
}
