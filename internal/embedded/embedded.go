package embedded

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Ports of [Start].
const (
	// DefaultPort is the port that Redis clients try first.
	DefaultPort = 6379
	// AnyPort asks for whichever port is free.
	AnyPort = -1
)

// Limits of the clock's step. miniredis walks all keys to move its TTLs, about
// a millisecond for 4,000 of them, and answers nobody meanwhile. So the step
// grows with the walk, and is 20 times as long.
const (
	minStep = 2 * time.Millisecond
	// maxStep is by how much the lease of a task ends before its lock, and less than the
	// default safety margin: if a lock expires one step early, its holder has stopped before.
	maxStep = 100 * time.Millisecond
	share   = 20
)

// A Server is a running in-process Redis. TTLs of its keys run out within one
// step of their time: 2 ms with a few hundred keys, at most 100 ms with many
// thousands. TIME and EXPIREAT follow the system's clock exactly.
type Server struct {
	mini *miniredis.Miniredis
	stop chan struct{} // closed by Close
	done chan struct{} // closed when the clock has stopped
}

// Start listens on a port of 127.0.0.1 alone, and starts the clock. 0 means [DefaultPort], or a free
// one if a server answers there. The caller must Close the server.
func Start(port int) (*Server, error) {
	mini, err := listen(port)
	if err != nil {
		return nil, err
	}
	s := &Server{mini: mini, stop: make(chan struct{}), done: make(chan struct{})}
	go s.clock()
	return s, nil
}

// Addr returns the address that clients connect to, as host:port.
func (s *Server) Addr() string { return s.mini.Addr() }

// Close stops the clock, ends all connections, frees the port and forgets all
// data. Call it once.
func (s *Server) Close() {
	close(s.stop)
	<-s.done
	s.mini.Close()
}

// clock moves the TTLs until Close.
func (s *Server) clock() {
	defer close(s.done)
	last := wall()
	timer := time.NewTimer(minStep)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		start := time.Now()
		now := wall()
		// A clock that was set back expires nothing; as with a real Redis,
		// one that was set forward does.
		if passed := now.Sub(last); passed > 0 {
			s.mini.FastForward(passed)
		}
		last = now
		timer.Reset(min(max(share*time.Since(start), minStep), maxStep))
	}
}

// wall returns the time without its monotonic reading, which stands still while
// a machine is suspended. TIME does not, and TTLs must agree with it.
func wall() time.Time { return time.Now().Round(0) }

func listen(port int) (*miniredis.Miniredis, error) {
	switch port {
	case AnyPort:
		port = 0
	case 0:
		// Some systems let a second process listen on 127.0.0.1 where another
		// listens on all addresses, and would hide that one.
		if !answers(DefaultPort) {
			port = DefaultPort
		}
	}
	mini := miniredis.NewMiniRedis()
	if err := mini.StartAddr(address(port)); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	return mini, nil
}

// answers reports whether somebody listens on the loopback port.
func answers(port int) bool {
	conn, err := net.DialTimeout("tcp", address(port), time.Second) //nolint:noctx // a loopback port answers at once, or not
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
