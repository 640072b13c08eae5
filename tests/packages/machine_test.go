//go:build linux

package packages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside is the environment variable of the process in the private machine.
const inside = "SIMBA_PACKAGES_INSIDE"

// runInPrivateMachine runs this test program again with its own mounts, process ids and network. It
// returns the exit code.
func runInPrivateMachine() (int, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return failed.ExitCode(), nil
	}
	return 0, err
}

// enterPrivateMachine changes the root of the process to a copy of the machine's file system. The
// copy keeps every change in memory, so tests can install packages.
func enterPrivateMachine() error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The mount below hides the content of this folder.
	base := os.TempDir()
	module, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	artifacts, err := filepath.Abs(*dist)
	if err != nil {
		return err
	}
	*dist = artifacts
	held := make(map[string]int) // by path: open folders to mount into the copy
	for _, dir := range []string{module, artifacts, "/dev"} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("open %s: %w", dir, err)
		}
		held[dir] = fd
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "mode=1777"); err != nil {
		return fmt.Errorf("mount %s: %w", base, err)
	}
	root := filepath.Join(base, "root")
	upper, work := filepath.Join(base, "upper"), filepath.Join(base, "work")
	for _, dir := range []string{root, upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", upper, work)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the copy of /: %w", err)
	}
	for dir, kind := range map[string]string{"/proc": "proc", "/run": "tmpfs", "/tmp": "tmpfs"} {
		if err := unix.Mount(kind, root+dir, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	for dir, fd := range held {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, root+dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := os.Chmod(root+"/tmp", 0o1777); err != nil {
		return err
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	os.Setenv("TMPDIR", "/tmp")
	if err := os.Chdir(wd); err != nil {
		return err
	}
	return loopbackUp()
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("enable lo: %w", err)
	}
	return nil
}
