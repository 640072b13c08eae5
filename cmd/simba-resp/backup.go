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
	made, err := makeBackupDir(dir)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	partial := filepath.Join(dir, partialName)
	info, err := copyBackup(ctx, server, partial)
	if err != nil {
		for _, dir := range made {
			_ = os.Remove(dir) // fails if another program has put a file there
		}
		return fmt.Errorf("backup: %w", err)
	}
	path := filepath.Join(dir, backupName)
	if err := joinErrors(os.Rename(partial, path), syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	fmt.Fprintf(out, "%s: %s\n", path, describeBackup(info))
	return nil
}

// makeBackupDir makes the directory, which only the user of this process may enter. It refuses a
// directory that has files, other than the file of an interrupted backup. Missing parents get the
// usual mode. It returns the directories that it has made, the deepest first.
func makeBackupDir(dir string) (made []string, err error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, d)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { // it may have other content
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != partialName {
			return nil, fmt.Errorf("%s is not empty: it has %q; name a new directory for each backup", dir, e.Name())
		}
	}
	return made, nil
}

// copyBackup writes a backup to a file, durably, and reads it again to check it.
//
// If the file exists already, it may belong to another backup that still runs. So copyBackup does
// not truncate it. When the server begins this backup, no other one runs, and copyBackup replaces
// the file by a new one. After an error copyBackup removes the file, unless it may belong to
// another backup.
func copyBackup(ctx context.Context, server *redis.Options, path string) (*persist.BackupInfo, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // after success it is closed already
	begun := false
	err = readBackup(ctx, server, func() (io.Writer, error) {
		begun = true
		err := joinErrors(f.Close(), os.Remove(path))
		if err == nil {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
		return f, err
	})
	if err == nil {
		err = joinErrors(f.Sync(), f.Close())
	}
	var info *persist.BackupInfo
	if err == nil {
		info, err = persist.ReadBackup(nil, path)
	}
	if err != nil {
		if stat, failure := os.Stat(path); begun || failure == nil && stat.Size() == 0 {
			_ = os.Remove(path) // an error does no harm: restore ignores the file
		}
		return nil, err
	}
	return info, nil
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
