package delay

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// command is the first argument of a program that runs as a proxy.
const command = "delay-proxy"

// A Process is a Line in a process of its own, so that its cost is not taken for a contender's. The
// process ends with this one. Kill cuts all connections and has new ones refused, until the next Start.
type Process struct {
	*proc.Server

	// Addr is where it listens, "127.0.0.1:port".
	Addr string
}

// Start runs line by a second process of this program, whose main function must call [Main]
// if [Asked]. The caller must Stop it.
func Start(ctx context.Context, line Line) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	server, err := proc.New(program)
	if err != nil {
		return nil, err
	}
	p := &Process{Server: server}
	p.Ready = func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", p.Addr)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	err = proc.OnFreePorts(func() (err error) {
		if p.Addr, err = proc.FreeAddr(ctx); err != nil {
			return err
		}
		p.Args = []string{command, p.Addr, line.Network, line.Server, line.OneWay.String()}
		return p.Start(ctx)
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// longest is more than programs and their servers have between them.
const longest = 100 * time.Millisecond

// Flag defines the flag -rtt: how much a network adds to each round trip.
func Flag(flags *flag.FlagSet, rtt *time.Duration) {
	usage := fmt.Sprintf("adds this `much` to each round trip between contenders and servers, as a network does (default 0, at most %v)", longest)
	flags.Func("rtt", usage, func(text string) (err error) {
		if *rtt, err = time.ParseDuration(text); err == nil && (*rtt < 0 || *rtt > longest) {
			err = fmt.Errorf("want 0 to %v", longest)
		}
		return err
	})
}

// Between returns the address of a server as contenders reach it, and a function to call when they are done. With an rtt that
// is a proxy, which holds the bytes of a round trip back for so long. A round trip takes a bit longer than that.
func Between(ctx context.Context, server string, rtt time.Duration) (far string, end func(), err error) {
	if rtt == 0 {
		return server, func() {}, nil
	}
	proxy, err := Start(ctx, Line{OneWay: rtt / 2, Network: "tcp", Server: server})
	if err != nil {
		return "", nil, err
	}
	return proxy.Addr, proxy.Stop, nil
}

// Asked reports whether this process is one that Start has started.
func Asked() bool { return len(os.Args) > 1 && os.Args[1] == command }

// Main is what such a process does, with its arguments.
func Main(ctx context.Context, args []string, _, _ io.Writer) error {
	if len(args) != 5 {
		return fmt.Errorf("want %s address network server delay, have %q", command, args)
	}
	oneWay, err := time.ParseDuration(args[4])
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", args[1])
	if err != nil {
		return err
	}
	line := Line{OneWay: oneWay, Network: args[2], Server: args[3]}
	return line.Serve(ctx, listener)
}
