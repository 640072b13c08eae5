#!/bin/sh
# A leader with nothing but redis-cli (Debian: redis-tools), for any POSIX shell.
#
#	./leader.sh [--addr host:port] [--mutex name] [--id contender] [--ttl ms]
#
# Run it in two terminals, beside `make run`: the first leads. End it with Ctrl-C or with
# kill -9, and the other takes over.
set -uf

addr=127.0.0.1:7379
mutex=leader
random=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
[ ${#random} -eq 16 ] || { echo "$0: no random number for an id" >&2; exit 1; }
id=$$@$(uname -n)~$random # containers can share process number and host name
ttl=3000        # how long a leader that died may be missed, in milliseconds
transition=1000 # follows the ttl: nobody else may lead yet, and we may still renew

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
renew=$((lease * 2 / 3)) # a third of the lease is left for slow answers
[ "$renew" -le "$ttl" ] || renew=$ttl

dir=$(mktemp -d) || exit 1
asking='' # the request, or the pause, that we wait for
working=''

# now prints milliseconds, where there is one on a clock that nobody sets.
now() {
	if read -r up rest 2>/dev/null </proc/uptime; then
		echo "${up%.*}${up#*.}0"
	else
		date +%s000
	fi
}

# ask makes a request and gives it up after $1 seconds; the reply is in $dir/reply. It is waited for in the
# background, since a shell hears signals only between commands.
ask() {
	limit=$1
	shift
	asking=begun # a signal may come before we know its number
	timeout "$limit" redis-cli -h "${addr%:*}" -p "${addr##*:}" "$@" >"$dir/reply" 2>&1 &
	asking=$!
	wait "$asking"
	code=$?
	asking=''
	return "$code"
}

# end ends a process of ours, and returns when it is gone. A signal is lost that comes before the process has
# become what it is to run, so there may be another.
end() {
	while kill "$1" 2>/dev/null; do
		sleep 0.05
	done
}

# pause does nothing for $1 milliseconds.
pause() {
	asking=begun
	sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" >/dev/null &
	asking=$!
	wait "$asking"
	asking=''
}

# A record comes as names and values in turn, a line each.
status() { sed -n 2p "$dir/reply"; }
token() { sed -n 6p "$dir/reply"; }

# held: is the lease, which began when the request at $1 was sent, ours at this moment?
held() { [ "$(now)" -lt "$(($1 + lease - lease / 100))" ]; }

# work is what the leader does, as a process of its own. It looks at its lease before each piece, so
# that it ends by itself should this script be killed. What it changes should be told the token,
# and turn away a smaller one than it has seen.
work() {
	trap 'exit 0' TERM
	while read -r sent <"$dir/sent" && held "$sent"; do
		echo working
		sleep 1 >/dev/null &
		wait $!
	done
}

# begin has the lease begin with the request that was sent at $1. A file is replaced, never half written.
begin() { echo "$1" >"$dir/next" && mv "$dir/next" "$dir/sent"; }

stop_work() {
	[ -n "$working" ] || return 0
	[ "$working" != begun ] || working=$!
	end "$working"
	working=''
}

# lead works and renews until the lease is lost. The wait for our turn does not tell when we were
# granted it: so the first renewal is at once, and the lease counts from before that was sent. A
# tenure that an administrator breaks is lost with the next renewal.
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
		*) # no answer: try again until the lease is over
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

# quit gives up the mutex, or the place in its queue, so that the next need not wait for our lease's end.
quit() {
	trap '' INT TERM
	[ "$asking" != begun ] || asking=$!
	[ -z "$asking" ] || end "$asking" # no request of ours may come after the release
	stop_work
	ask 3 SIMBA.RELEASE "$mutex" "$id"
	[ "$(cat "$dir/reply")" != 1 ] || echo released
	rm -rf "$dir"
	exit 0
}
trap quit INT TERM

while :; do
	# The server holds the request until it is our turn, for 10 s at most.
	ask 15 SIMBA.ACQUIRE "$mutex" "$id" "$ttl" TRANSITION "$transition" WAIT 10000
	case $(status) in
	acquired | renewed) lead "$(token)" ;;
	timeout) ;;
	*) # the server is away, or says what is wrong
		cat "$dir/reply" >&2
		pause 1000
		;;
	esac
done
