#!/bin/sh
# A leader that needs only redis-cli (Debian: redis-tools) and a POSIX shell.
#
#	./leader.sh [--addr host:port] [--mutex name] [--id contender] [--ttl ms]
#
# Start a server with `make run`, and this script in two other terminals. The first script becomes
# the leader. End it with Ctrl-C or kill -9, and the second script becomes the leader.
set -uf

addr=127.0.0.1:7379
mutex=leader
random=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
[ ${#random} -eq 16 ] || { echo "$0: no random number for an id" >&2; exit 1; }
id=$$@$(uname -n)~$random # random: containers can share process number and host name
ttl=3000        # the TTL window of the lease, in milliseconds
transition=1000 # the transition window after it, in which the leader may still work and renew

while [ $# -ge 2 ]; do
	case $1 in
	--addr) addr=$2 ;;
	--mutex) mutex=$2 ;;
	--id) id=$2 ;;
	--ttl) ttl=$2 ;;
	*) break ;;
	esac
	shift 2
done
[ $# -eq 0 ] || { echo "$0: what is $1?" >&2; exit 2; }

lease=$((ttl + transition))
renew=$((lease * 2 / 3)) # a third of the lease is left for slow replies
[ "$renew" -le "$ttl" ] || renew=$ttl

dir=$(mktemp -d) || exit 1
asking='' # the process id of the request or the pause in progress
working=''

# now prints a time in milliseconds. On Linux its clock counts from the boot, and nobody can set it.
now() {
	if read -r up rest 2>/dev/null </proc/uptime; then
		echo "${up%.*}${up#*.}0"
	else
		date +%s000
	fi
}

# ask sends a request and gives it up after $1 seconds. The reply is in $dir/reply. The request runs
# in the background, because a shell handles a signal only between commands or during wait.
ask() {
	limit=$1
	shift
	asking=begun # a signal may come before the process id is known
	timeout "$limit" redis-cli -h "${addr%:*}" -p "${addr##*:}" "$@" >"$dir/reply" 2>&1 &
	asking=$!
	wait "$asking"
	code=$?
	asking=''
	return "$code"
}

# end ends a process of this script, and returns when the process is gone. A new process may lose a
# signal that comes before it runs its program, so end repeats the signal.
end() {
	while kill "$1" 2>/dev/null; do
		sleep 0.05
	done
}

# pause waits for $1 milliseconds.
pause() {
	asking=begun
	sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" >/dev/null &
	asking=$!
	wait "$asking"
	asking=''
}

# A record has a line for each name. The next line has its value.
status() { sed -n 2p "$dir/reply"; }
token() { sed -n 6p "$dir/reply"; }

# held succeeds if the lease still lasts. The lease began when the request was sent, at $1.
held() { [ "$(now)" -lt "$(($1 + lease - lease / 100))" ]; }

# work does the leader's work in a process of its own. It checks the lease before each piece. So it
# ends by itself if this script is killed. A real program sends the token with each change, and the
# resource refuses a token that is smaller than the largest so far.
work() {
	trap 'exit 0' TERM
	while read -r sent <"$dir/sent" && held "$sent"; do
		echo working
		sleep 1 >/dev/null &
		wait $!
	done
}

# begin records that the lease began with the request that was sent at $1. It replaces the file in
# one step, so that work never reads half a file.
begin() { echo "$1" >"$dir/next" && mv "$dir/next" "$dir/sent"; }

stop_work() {
	[ -n "$working" ] || return 0
	[ "$working" != begun ] || working=$!
	end "$working"
	working=''
}

# lead works and renews until the lease is lost. The reply to an ACQUIRE that has waited does not say
# when the server granted the mutex. So lead renews at once, and counts the lease from this renewal.
# If an administrator breaks the tenure, the next renewal finds out.
lead() {
	tenure=$1 sent=''
	while :; do
		asked=$(now)
		ask 1 SIMBA.GUARD "$mutex" "$id" "$ttl" TRANSITION "$transition" TOKEN "$tenure"
		case $(status) in
		renewed)
			sent=$asked
			begin "$sent"
			if [ -z "$working" ]; then
				held "$sent" || return
				echo "acquired, token $tenure"
				working=begun
				work &
				working=$!
			fi
			due=$((renew - ($(now) - sent)))
			;;
		lost) break ;;
		*) # no reply: try again until the lease ends
			[ -n "$sent" ] || break
			held "$sent" || break
			due=200
			;;
		esac
		[ "$due" -le 0 ] || pause "$due"
	done
	stop_work
	echo lost
}

# quit releases the mutex or the queue entry, so that the next waiter need not wait for the end of
# the lease.
quit() {
	trap '' INT TERM
	[ "$asking" != begun ] || asking=$!
	[ -z "$asking" ] || end "$asking" # no ACQUIRE or GUARD may arrive after the release
	stop_work
	ask 3 SIMBA.RELEASE "$mutex" "$id"
	[ "$(cat "$dir/reply")" != 1 ] || echo released
	rm -rf "$dir"
	exit 0
}
trap quit INT TERM

while :; do
	# The request blocks until the server grants the mutex, for 10 s at most.
	ask 15 SIMBA.ACQUIRE "$mutex" "$id" "$ttl" TRANSITION "$transition" WAIT 10000
	case $(status) in
	acquired | renewed) lead "$(token)" ;;
	timeout) ;;
	*) # the server cannot be reached, or has replied with an error
		cat "$dir/reply" >&2
		pause 1000
		;;
	esac
done
