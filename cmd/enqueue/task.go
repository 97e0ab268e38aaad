package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

func (a *app) taskCommand() *cobra.Command {
	var (
		task    taskText
		options taskOptions
		payload string
		retries int
	)
	cmd := &cobra.Command{
		Use:   "task KIND --payload JSON|@FILE|-",
		Short: "Enqueue one task and print its id",
		Long: `Enqueue one task and print its id; with --json its receipt, {"id":..,"queue":..},
and "replaced":.. if it has replaced another by --debounce.

Known kinds: ` + strings.Join(tasks.Kinds(), ", ") + `.
The payload of a known kind is checked, and says what its resource is. Any other
kind is your own: it needs a --resource, and its payload may be any JSON but null.

A task that is not valid is refused with exit status 3. So is one whose id, or
whose equal (--unique, --unique-for), is there already. After a fault of Redis the
task may be stored all the same: with an --id you can try again safely.`,
		Example: `  enqueue task order:audit --payload '{"order":"536365"}'
  enqueue task stock:deduct --payload @deduction.json --queue critical --delay 90s
  enqueue task balance:transfer --payload '{"from":"17850","to":"13047","cents":250}'
  enqueue task order:ship --payload '{"order":"1001"}' --resource order:1001
  enqueue task cash:move --payload '{"cents":500}' --resource account:1 --resource account:2
  enqueue task order:audit --payload '{"order":"536365"}' --debounce 536365 --delay 10s --max-delay 1m`,
		Args: cli.One,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("retries") {
				options.Retries = &retries
			}
			opts, err := options.options()
			if err != nil {
				field, problem, _ := strings.Cut(err.Error(), ":")
				return fmt.Errorf("--%s:%s", strings.ReplaceAll(field, "_", "-"), problem)
			}
			if opts.Policy != nil { // its fields are flags here
				if err := checkFlags(&queue.Options{Policy: opts.Policy}); err != nil {
					return err
				}
			}
			task.Kind = args[0]
			task.Payload, err = a.payload(cmd.Context(), payload)
			if errors.Is(err, errInterrupted) {
				return cli.Fault(err)
			}
			if err != nil {
				return fmt.Errorf("--payload: %w", err)
			}
			return a.enqueueTask(cmd.Context(), task, opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "the task's payload: `JSON`, @FILE, or - for stdin")
	f.StringArrayVar((*[]string)(&task.Resources), "resource", nil, "the `resource` of a task of your own, such as order:1001; once for each if it needs several")
	f.IntVar(&retries, "retries", 0, "try it again after `n` failures of its own at most; 0 for never (default 25)")
	options.addFlags(f)
	_ = cmd.MarkFlagRequired("payload") // there is such a flag
	return cmd
}

// payload returns the text that --payload stands for.
func (a *app) payload(ctx context.Context, value string) ([]byte, error) {
	from := a.stdin
	if name, ok := strings.CutPrefix(value, "@"); ok {
		if name == "" {
			return nil, errors.New("want the path of a file behind @, have nothing")
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	} else if value != "-" {
		return []byte(value), nil
	}
	text, err := io.ReadAll(interruptible(ctx, io.LimitReader(from, maxStreamLine))) // a device has no end
	if err == nil && len(text) == maxStreamLine {
		err = fmt.Errorf("want less than %d bytes", maxStreamLine)
	}
	return text, err
}

func (a *app) enqueueTask(ctx context.Context, text taskText, opts *queue.Options) error {
	settings, err := a.settings()
	if err != nil {
		return err
	}
	task, err := text.decode()
	if err != nil && strings.HasPrefix(err.Error(), "resource: ") {
		err = fmt.Errorf("--%w", err) // the field of a line is a flag here
	}
	if err == nil {
		err = settings.Client().Check(task, opts)
	}
	if err != nil {
		return refused(err)
	}
	receipt := queue.Receipt{ID: opts.TaskID, Queue: cmp.Or(opts.Queue, defaultQueue)}
	if a.flags.dryRun {
		return a.printReceipt(receipt, task.Kind()+" is valid")
	}
	redis, err := cli.Connect(ctx, settings, "enqueue", "worker")
	if err != nil {
		return err
	}
	defer redis.Close()
	client, err := queue.NewClient(redis, settings.Client())
	if err != nil {
		return err
	}
	// An interrupt must not hide whether Redis has the task.
	receipt, err = client.Enqueue(context.WithoutCancel(ctx), task, opts)
	switch {
	case errors.Is(err, queue.ErrTaskIDConflict), errors.Is(err, queue.ErrDuplicate):
		return refused(err)
	case err != nil:
		return cli.Fault(settings.Redis.Failed("", err))
	}
	a.warnUnserved(redis, map[string]bool{receipt.Queue: true})
	return a.printReceipt(receipt, receipt.ID)
}

// printReceipt prints text, or the receipt as JSON if that is asked for.
func (a *app) printReceipt(r queue.Receipt, text string) (err error) {
	if a.flags.json {
		err = json.NewEncoder(a.stdout).Encode(struct {
			queue.Receipt

			DryRun bool `json:"dry_run,omitempty"`
		}{r, a.flags.dryRun})
	} else {
		_, err = fmt.Fprintln(a.stdout, text)
	}
	if err != nil {
		return cli.Fault(err)
	}
	return nil
}
