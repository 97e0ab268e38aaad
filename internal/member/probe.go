package member

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/config"
)

// askPatience is how long a worker may take to answer --probe. /readyz itself waits up to 2 s.
const askPatience = 3 * time.Second

// ask asks the worker that runs with the same settings for a probe, and prints the answer. A worker that
// does not answer with 200 is a fault.
func (c *command) ask(cmd *cobra.Command, cfg config.Config) error {
	host, port, err := net.SplitHostPort(cfg.HTTP.Address)
	if err != nil || port == "0" {
		return fmt.Errorf("%s: want an address that --probe can ask, have %s", cfg.Place("http.address"), cmp.Or(cfg.HTTP.Address, "off"))
	}
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1" // of all addresses
	}
	c.serving = true
	ctx, cancel := context.WithTimeout(cmd.Context(), askPatience)
	defer cancel()
	url := "http://" + net.JoinHostPort(host, port) + "/" + c.probe
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	// A proxy that the environment names would ask from another machine.
	reply, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	defer func() { _ = reply.Body.Close() }()
	const longest = 4 << 10 // of an answer
	if _, err := io.Copy(cmd.OutOrStdout(), io.LimitReader(reply.Body, longest)); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: want status 200, have %s", url, reply.Status)
	}
	return nil
}
