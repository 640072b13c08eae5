// Worker is a command for tests of lock and elect. Every two milliseconds it appends a line to a
// file:
//
//	<nanoseconds of the monotonic clock> <token> <pid>
//
// On standard output it reports its start and each signal, also CONT after a stop. HUP, INT, QUIT
// and TERM end it with exit code 0, unless the flag --stubborn is set.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func run() error {
	file := flag.String("file", "", "the `file` for the timestamps")
	stubborn := flag.Bool("stubborn", false, "ignore signals that ask for an end")
	family := flag.Bool("family", false, "run another worker beside this one")
	leave := flag.Bool("leave", false, "start another worker, and then end")
	zombie := flag.Bool("zombie", false, "the other worker leaves the process group, in which it has a zombie")
	another := flag.Bool("another", false, "be the other worker: close file 3 after the start")
	flag.Parse()

	// Catch signals before the first output, since the test may then send one.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGCONT)
	moments, err := os.OpenFile(*file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if *family || *leave {
		if err := startAnother(*file, fmt.Sprintf("--stubborn=%v", *stubborn), fmt.Sprintf("--zombie=%v", *zombie)); err != nil {
			return err
		}
		if *leave {
			return nil
		}
	}
	if *another && *zombie {
		if err := exec.Command("true").Start(); err != nil { // becomes a zombie
			return err
		}
		if err := unix.Setpgid(0, 0); err != nil {
			return err
		}
	}
	if err := note(moments); err != nil {
		return err
	}
	if *another {
		fmt.Println("another started", os.Getpid())
		os.NewFile(3, "ready").Close()
	} else {
		fmt.Printf("started %d token %s of %s foreground %v\n", os.Getpid(), os.Getenv("SIMBA_TOKEN"), os.Getenv("SIMBA_MUTEX"), foreground())
	}
	limit := time.After(time.Hour) // in case a failed test does not end the worker
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := note(moments); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-limit:
			return errors.New("no signal ended the worker in time")
		case sig := <-signals:
			fmt.Printf("signal %v foreground %v\n", sig, foreground())
			if sig != unix.SIGUSR1 && sig != unix.SIGCONT && !*stubborn {
				return nil
			}
		}
	}
}

func note(moments *os.File) error {
	_, err := fmt.Fprintf(moments, "%d %s %d\n", monotonic(), os.Getenv("SIMBA_TOKEN"), os.Getpid())
	return err
}

// startAnother starts another worker, and returns when it runs.
func startAnother(file string, flags ...string) error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	other := exec.Command(os.Args[0], append(flags, "--another", "--file", file)...)
	other.Stdout, other.ExtraFiles = os.Stdout, []*os.File{theirs}
	if err := other.Start(); err != nil {
		return err
	}
	theirs.Close()
	_, err = io.Copy(io.Discard, ready) // until the other worker closes file 3
	return err
}

func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// foreground reports whether this process is in the foreground of a terminal.
func foreground() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
