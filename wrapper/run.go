package wrapper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/client"
)

// MinGrace is the smallest Runner.Grace. It leaves the command half a second after SIGTERM, and
// half a second after SIGKILL.
const MinGrace = time.Second

const (
	// checkEvery is the longest time between two checks of the lease. Go's timers stand still while
	// the machine is suspended. Since checkEvery is short, a check comes soon after the wake-up.
	checkEvery = 200 * time.Millisecond
	// groupEvery is the time between two checks whether a process of the command's group is left.
	// It is also the time between two SIGKILLs.
	groupEvery = 20 * time.Millisecond
)

// minMargin is the shortest margin. The client may count a lease as lost 250 ms before its end, and
// the command must end before that.
const minMargin = 500 * time.Millisecond

// margin returns how long before the end of the lease the command gets SIGKILL. Sending the signal
// and ending the processes take time.
func margin(grace time.Duration) time.Duration { return max(grace/4, minMargin) }

// Lease is a mutex that this process owns: a *client.Lock.
type Lease interface {
	// Context ends when the mutex is lost.
	Context() context.Context
	// Owner returns the owner, with the windows of the present lease.
	Owner() client.Owner
}

// NotStarted is the code of a command that was not started.
const NotStarted = -1

// Runner runs commands, one at a time.
type Runner struct {
	Mutex   string
	Grace   time.Duration        // the transition window of the leases; at least MinGrace
	Signals <-chan os.Signal     // from Catch
	Say     func(string, ...any) // reports to the user; it must not block
}

// Result is how a command ended.
type Result struct {
	// Code is the exit code of the command's first process. It is 128+n if signal n has ended that
	// process, and NotStarted if the mutex was lost before the command started.
	Code   int
	Signal unix.Signal // the signal that ended the first process; 0 = none
	// Lost reports that the mutex was lost, or that its lease could not be renewed.
	Lost bool
	// Asked reports that a signal asked the wrapper to end, or that the user has interrupted the
	// command in the terminal.
	Asked bool
}

type run struct {
	*Runner
	lease Lease
	p     *process
	tty   *terminal
	send  func(unix.Signal) error // to the process group

	front   bool        // the command is to have the terminal whenever this job has it
	halt    unix.Signal // the signal that has stopped the first process; 0 = it runs
	pauseBy time.Time   // when processes that ignore SIGTSTP get SIGSTOP; zero = no pause is due

	killAt time.Time // when SIGKILL is due; zero until stop is called
	broken bool      // the mutex was lost before its lease was over; killAt then stays as it is
	killed bool
	Result
}

// Run runs a command and returns when the command has ended. If the lease is not renewed, Run stops
// the command before the lease ends. The error is a *StartError.
func (r *Runner) Run(c Command, lease Lease) (Result, error) {
	tty := openTerminal()
	defer tty.close()
	defer catchStops()()
	var front *terminal
	if tty.foreground() && !backgroundJob {
		front = tty
	}
	if lease.Context().Err() != nil { // lost while this process was suspended
		return Result{Lost: true, Code: NotStarted}, nil
	}
	p, err := start(c, environment(r.Mutex, lease.Owner()), front)
	if err != nil {
		return Result{}, err
	}
	run := &run{Runner: r, lease: lease, p: p, tty: tty, send: p.signal, front: !backgroundJob}
	waiting := true
	defer func() {
		// If wait panics, Go's report of the panic may block beyond the end of the lease.
		if waiting {
			_ = p.signal(unix.SIGKILL)
		}
	}()
	run.wait()
	waiting = false
	return run.Result, nil
}

func (r *run) wait() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lost, ended := r.lease.Context().Done(), r.p.ended
	for {
		select {
		case <-timer.C:
		case <-lost:
			lost = nil
		case sig := <-r.Signals:
			_, ends := Ends(sig)
			r.Asked = r.Asked || ends
			r.signal(sig.(unix.Signal))
		case sig := <-stops:
			r.stopRequest(sig.(unix.Signal))
		case sig := <-r.p.stopped:
			r.halted(sig)
		case <-ended:
			ended = nil
			r.end()
		}
		next := r.check()
		if ended == nil {
			// After SIGKILL no process of the group can start another, so one scan finds all.
			if r.p.empty() || r.killed && onlyZombies(r.p.pid) {
				return
			}
			next = groupEvery
		} else if !r.pauseBy.IsZero() && r.killAt.IsZero() {
			r.pause()
			next = groupEvery
		}
		timer.Reset(next)
	}
}

// check stops or kills the command if that is due. It returns the time until the next check.
func (r *run) check() time.Duration {
	over := r.lease.Context().Err() != nil
	owner, now := r.lease.Owner(), time.Now()
	last := owner.TransitionAt.Add(-margin(r.Grace)) // when SIGKILL is due
	due := owner.TTLAt                               // when SIGTERM is due
	if last.Before(due) {                            // the server has granted a shorter lease
		due = last
	}
	r.Lost = r.Lost || over
	switch stopped := !r.killAt.IsZero(); {
	case !stopped && over && now.Before(last):
		r.broken = true
		r.stop(now.Add(r.Grace-margin(r.Grace)), "the mutex is lost: another contender may own it now", "the command gets")
	case !stopped && !now.Before(due):
		r.Lost = true
		r.stop(last, "the lease was not renewed in its TTL window", "the command gets")
	case stopped && !r.broken && last.Before(r.killAt):
		r.killAt = last
	}
	next := min(checkEvery, due.Sub(now))
	if !r.killAt.IsZero() {
		next = min(checkEvery, r.killAt.Sub(now))
		if next <= 0 {
			r.kill()
			next = groupEvery
		}
	}
	if r.killAt.IsZero() && r.pauseBy.IsZero() && (r.front && r.tty.foreground() || r.needsTerminal()) {
		// The shell may have put this process into the foreground, perhaps without SIGCONT.
		r.resume()
	}
	return max(next, time.Millisecond)
}

// stop sends SIGTERM, unless killAt has come. At killAt, check sends SIGKILL.
func (r *run) stop(killAt time.Time, why, whoGets string) {
	r.killAt = killAt
	left := time.Until(killAt)
	if left <= 0 {
		r.Say("%s; too late for SIGTERM", why)
		return
	}
	r.Say("%s; %s SIGTERM, and SIGKILL in %v", why, whoGets, left.Round(time.Millisecond))
	r.signal(unix.SIGTERM)
	r.signal(unix.SIGCONT) // a stopped process handles SIGTERM only after SIGCONT
}

func (r *run) kill() {
	if !r.killed {
		r.killed = true
		r.Say("the command did not end in time; it gets SIGKILL")
	}
	_ = r.send(unix.SIGKILL) // an error needs no handling: check calls kill again
}

func (r *run) signal(sig unix.Signal) {
	if err := r.send(sig); err != nil && !errors.Is(err, unix.ESRCH) {
		r.Say("the command cannot get signal %v: %v", sig, err)
	}
}

// end handles the end of the first process. It stops the rest of the group, as systemd does,
// because the mutex stays locked until no process of the command is left.
func (r *run) end() {
	r.Code = r.p.code()
	if r.p.status.Signaled() {
		r.Signal = r.p.status.Signal()
	}
	if r.tty.front() == r.p.pid {
		r.take()
		if r.Signal == unix.SIGINT || r.Signal == unix.SIGQUIT {
			// The user typed Ctrl-C or Ctrl-\. Without the wrapper, the whole job would have got
			// the signal. So end sends it to the job: a script that runs the wrapper then ends too.
			r.Asked = true
			_ = unix.Kill(0, r.Signal)
		}
	}
	if r.killAt.IsZero() && !r.p.empty() {
		left := strings.TrimSpace("processes " + list(members(r.p.pid)))
		r.stop(time.Now().Add(r.Grace-margin(r.Grace)), "the command has ended and left "+left, "they get")
	}
}

// list returns the ids and names of the first processes.
func list(processes []member) string {
	const most = 10
	var text []string
	for _, m := range processes[:min(most, len(processes))] {
		text = append(text, fmt.Sprintf("%d %q", m.pid, m.name))
	}
	if more := len(processes) - most; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ", ")
}

// stopRequest handles a signal that stops this process by default. Since the lease would then end
// without a renewal, the command must be stopped before.
//
// SIGTTIN and SIGTTOU mean that a process of this group, such as a pager, needs the terminal.
func (r *run) stopRequest(sig unix.Signal) {
	needs := sig != unix.SIGTSTP
	r.front = r.front && !needs
	switch {
	case needs && (r.tty.foreground() || r.tty.front() == r.p.pid):
		r.take()
	case r.killAt.IsZero() && r.pauseBy.IsZero():
		r.pauseBy = time.Now().Add(stopPatience) // see pause
		r.signal(unix.SIGTSTP)
	case sig == unix.SIGTTOU && !r.killAt.IsZero():
		signal.Ignore(sig) // otherwise the kernel repeats the write of this process for ever
	}
}

// take puts the process group of this process into the foreground, and continues its processes that
// have waited for that.
func (r *run) take() {
	r.tty.give(unix.Getpgrp())
	_ = unix.Kill(0, unix.SIGCONT)
}

// halted handles a stop of the first process. If the process needs the terminal, it gets it.
// Otherwise this process stops its whole job, as a shell expects when the user types Ctrl-Z.
func (r *run) halted(sig unix.Signal) {
	r.halt = sig
	if r.tty == nil || !r.killAt.IsZero() {
		return
	}
	if r.needsTerminal() {
		r.front = true
		if r.resume(); r.halt == 0 {
			return
		}
	}
	if r.pauseBy.IsZero() {
		_ = unix.Kill(0, unix.SIGTSTP) // for this process, too: see stopRequest
	}
}

func (r *run) needsTerminal() bool { return r.halt == unix.SIGTTIN || r.halt == unix.SIGTTOU }

// pause stops this process if no process of the command runs. When this process continues, it
// checks the lease before the command continues.
func (r *run) pause() {
	if !time.Now().Before(r.pauseBy) {
		r.signal(unix.SIGSTOP)
	}
	if r.halt == 0 || !stopped(r.p.pid) {
		return
	}
	r.pauseBy = time.Time{}
	stopSelf()
	if r.check(); r.killAt.IsZero() {
		r.resume()
	}
}

// resume continues the command after a stop. If the command needs the terminal and another job has
// it, the command stays stopped. Otherwise it would stop again at once.
func (r *run) resume() {
	switch front := r.tty.front(); {
	case r.front && r.tty.foreground():
		r.tty.give(r.p.pid)
	case r.needsTerminal() && front != r.p.pid && front != 0:
		return
	}
	if r.halt != 0 {
		r.halt = 0
		r.signal(unix.SIGCONT)
	}
}
