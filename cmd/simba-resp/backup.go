package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/persist"
)

// A backup is a directory with one file. The file has partialName until it is complete and durable,
// so nobody takes an interrupted backup for a complete one.
const (
	backupName  = "simba-resp.backup"
	partialName = backupName + ".partial"
)

// backupTimeout bounds the wait for a reply. Before its first reply the server brings its
// checkpoint up to date.
const backupTimeout = 5 * time.Minute

func backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the data of a running server into a new directory",
		Long: "Copy the data of a running server into DIR, which must be empty or not exist. The copy has every\n" +
			"change that the server has acknowledged. Only the engine embedded with a disk has backups.",
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := cli.Options(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilInterrupt(cmd.Context())
			defer stop()
			return takeBackup(ctx, server, args[0], cmd.OutOrStdout())
		},
	}
	cli.AddConnection(cmd)
	return ownHelp(cmd)
}

func oneDir(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return configErrors{fmt.Errorf("%s: name one directory of a backup; there are %d arguments", cmd.Name(), len(args))}
	}
	return nil
}

// ownHelp gives a command the usual page of --help. Otherwise the command would inherit the page of
// its parent, which lists settings.
func ownHelp(cmd *cobra.Command) *cobra.Command {
	cmd.SetHelpFunc(new(cobra.Command).HelpFunc())
	return cmd
}

// untilInterrupt returns a context that ends when a user or a service manager stops the command. A
// signal that this process was started to ignore does not end it.
func untilInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)...)
}

// takeBackup copies the data of a running server into a directory, which must be empty or not
// exist. It writes a line to out that describes the backup.
func takeBackup(ctx context.Context, server *redis.Options, dir string, out io.Writer) error {
	dir = filepath.Clean(dir)
	info, err := copyBackup(ctx, server, dir)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	fmt.Fprintf(out, "%s: %s\n", filepath.Join(dir, backupName), describeBackup(info))
	return nil
}

// copyBackup writes a backup into a directory, durably, and reads it again to check it. It makes the
// directory when the server has begun the backup.
func copyBackup(ctx context.Context, server *redis.Options, dir string) (info *persist.BackupInfo, err error) {
	partial := filepath.Join(dir, partialName)
	var f *os.File
	err = readBackup(ctx, server, func() (io.Writer, error) {
		err := makeBackupDir(dir)
		if err == nil {
			f, err = os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
		return f, err
	})
	if f == nil {
		return nil, err
	}
	if err = joinErrors(err, f.Sync(), f.Close()); err == nil {
		info, err = persist.ReadBackup(nil, partial)
	}
	if err == nil {
		err = joinErrors(os.Rename(partial, filepath.Join(dir, backupName)), syncDir(dir), syncDir(filepath.Dir(dir)))
	}
	if err != nil {
		_ = os.Remove(partial) // an error does no harm: restore ignores the file
	}
	return info, err
}

// makeBackupDir makes the directory, which only the user of this process may enter. It refuses a
// directory that has files. Missing parents get the usual mode.
func makeBackupDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { // it may have other content
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty: it has %q; name a new directory for each backup", dir, entries[0].Name())
	}
	return err
}

// readBackup copies the server's data. When the server has begun the backup, readBackup calls
// openWriter, and writes the data to the writer that openWriter returns. The server lets one backup
// run at a time, and ends a backup when its connection ends. So all commands use one connection,
// and go-redis must not repeat a command on another one.
func readBackup(ctx context.Context, server *redis.Options, openWriter func() (io.Writer, error)) error {
	own := *server
	own.MaxRetries = -1
	own.ReadTimeout = backupTimeout
	own.ContextTimeoutEnabled = true
	client := redis.NewClient(&own)
	defer client.Close()
	// go-redis does not end a read when ctx is canceled. Closing the client does.
	defer context.AfterFunc(ctx, func() { client.Close() })()
	conn := client.Conn()
	defer conn.Close()
	do := func(args ...any) (reply string, err error) {
		if reply, err = conn.Do(ctx, args...).Text(); err != nil {
			err = cli.Explain(&own, cmp.Or(ctx.Err(), err))
		}
		return reply, err
	}
	if _, err := do("SIMBA.BACKUP", "BEGIN"); err != nil {
		return err
	}
	w, err := openWriter()
	if err != nil {
		return err
	}
	for offset := 0; ; {
		part, err := do("SIMBA.BACKUP", "READ", offset)
		if err != nil || part == "" {
			return err
		}
		n, err := io.WriteString(w, part)
		if err != nil {
			return err
		}
		offset += n
	}
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return joinErrors(d.Sync(), d.Close())
}

func describeBackup(i *persist.BackupInfo) string {
	return fmt.Sprintf("store %s, taken at %s, %d leases, %d events, last token %d, %d bytes",
		i.Store, i.Taken.UTC().Format(time.RFC3339), i.Leases, i.Events, i.Token, i.Size)
}
