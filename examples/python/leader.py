#!/usr/bin/env python3
"""A leader loop with redis-py, tested with 4.3 (Debian: python3-redis) and 8.0.

Start a server with `make run`, and this program in two other terminals:

    python3 leader.py

The first process leads. End it with Ctrl-C or kill -9, and the second process leads.
"""

import argparse
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
import traceback

import redis

# A clock that nobody can set. On Linux it also runs while the machine is suspended.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
TIMEOUT = 3.0  # seconds that a request may take
PAUSE = 0.5  # seconds between a failed request and the next one


def now():
    return time.clock_gettime(CLOCK)


class Lease:
    """One tenure. A thread of its own renews the lease until the lease is lost or ended."""

    def __init__(self, contender, token, sent):
        self.token = token
        self._contender = contender
        self._ended = threading.Event()
        self.renew_now = threading.Event()
        self._begin(sent)
        self._renewer = threading.Thread(target=self._renew)
        self._renewer.start()

    def held(self):
        """Return whether we own the mutex now. held reads the clock, so the result is right even
        after a freeze of the process."""
        return not self._ended.is_set() and now() < self._until

    def wait(self, seconds):
        """Sleep, but no longer than the lease is held."""
        self._ended.wait(max(0.0, min(seconds, self._until - now())))

    def end(self):
        """Stop the renewals. join waits for the last renewal."""
        self._ended.set()
        self.renew_now.set()

    def join(self):
        self._renewer.join()

    def _begin(self, sent):
        # The lease counts from before the request was sent, so it ends here before it ends at the
        # server. An owner may work in the transition window too. The margin of 1 % is for clocks
        # that run at different speeds.
        ttl, lease = self._contender.ttl, self._contender.ttl + self._contender.transition
        self._until = sent + lease * 0.99
        self._renew_at = sent + min(ttl, lease * 2 / 3)

    def _renew(self):
        while self.held():
            self.renew_now.wait(max(0.0, min(self._renew_at, self._until) - now()))
            self.renew_now.clear()
            if not self.held():
                break
            sent = now()
            try:
                answer = self._contender.ask("SIMBA.GUARD", self.token)
            except redis.RedisError:
                self._renew_at = now() + 0.1  # try again, until the lease ends
                continue
            if answer["status"] != "renewed":
                break  # another contender may own the mutex
            self._begin(sent)
        self._ended.set()


class Contender:
    def __init__(self, addr, mutex, name, ttl, transition):
        host, port = addr.rsplit(":", 1)
        self.mutex, self.name = mutex, name
        self.ttl, self.transition = ttl, transition  # seconds
        self._redis = redis.Redis(
            host=host, port=int(port), decode_responses=True,
            socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT,
        )
        self._stopping = threading.Event()
        self._ask_now = threading.Event()
        self._lease = None

    def ask(self, command, token=None):
        """Send a request and return its reply, a record. In RESP3 a record is a dict, in RESP2 a
        list with each name before its value."""
        ttl, transition = int(self.ttl * 1000), int(self.transition * 1000)
        arguments = [self.mutex, self.name, ttl, "TRANSITION", transition]
        if token is not None:
            arguments += ["TOKEN", token]
        reply = self._redis.execute_command(command, *arguments)
        return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))

    def run(self, work):
        """Contend until stop is called, and call work(lease) as the leader. work must return when
        the lease is not held any more."""
        threading.Thread(target=self._listen, daemon=True).start()
        while not self._stopping.is_set():
            self._ask_now.clear()
            sent = now()
            try:
                answer = self.ask("SIMBA.ACQUIRE")
            except redis.RedisError as err:
                print("cannot ask the server:", err, flush=True)
                self._ask_now.wait(PAUSE * (1 + random.random()))
                continue
            if answer["status"] in ("acquired", "renewed"):
                self._lead(Lease(self, answer["token"], sent), work)
                continue
            # Ask again after a notice, or when the owner's lease ends. The random part spreads the
            # waiters' requests.
            early = 0.2 if answer["transition"] > answer["ttl"] else 0.0
            left = answer["transition"] / 1000 - early + random.uniform(0, 1 + early)
            self._ask_now.wait(max(0.0, left))
        self._give_up()

    def stop(self):
        self._stopping.set()
        self._ask_now.set()
        if lease := self._lease:
            lease.end()

    def _lead(self, lease, work):
        print(f"acquired, token {lease.token}", flush=True)
        self._lease = lease
        if self._stopping.is_set():  # stop may have run before self._lease was set
            lease.end()
        try:
            work(lease)
        finally:
            self._lease = None
            lease.end()
            lease.join()
        print("stopped working", flush=True)

    def _give_up(self):
        """Release the mutex, or leave its queue, so that the next waiter need not wait for the
        end of our lease."""
        try:
            if self._redis.execute_command("SIMBA.RELEASE", self.mutex, self.name) == 1:
                print("released", flush=True)
        except redis.RedisError as err:
            print("not released, it ends with its lease:", err, flush=True)

    def _listen(self):
        """Listen for notices. The server sends a notice on a waiter's own channel when the waiter
        is next. On the channel of the mutex it announces a free mutex and each new owner. From this
        a leader learns that an administrator has broken its tenure."""
        ours, everyones = f"simba:{{{self.mutex}}}:{self.name}", f"simba:{{{self.mutex}}}"
        subscriber = self._redis.pubsub()
        subscribed = False
        while True:
            try:
                if not subscribed:
                    subscriber.subscribe(ours, everyones)
                    subscribed = True
                message = subscriber.get_message(timeout=60)  # reconnects and subscribes again
            except redis.RedisError:
                time.sleep(PAUSE)
                continue
            if message is None:
                continue
            fresh = message["type"] == "subscribe"  # notices may have been lost before
            if fresh or message["channel"] == ours or message["data"].startswith("released@@"):
                self._ask_now.set()
            lease = self._lease
            if lease is not None and (fresh or message["data"] != f"acquired@@{self.name}"):
                lease.renew_now.set()


def work(lease):
    # Pass lease.token to the resource, which must refuse a token smaller than one it has seen.
    while lease.held():
        print("working", flush=True)
        lease.wait(1)


def end_process(failure):
    """End the process after an error in a thread. Otherwise the process would neither lead nor
    end. The mutex is free when the lease ends."""
    traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    sys.stdout.flush()
    os._exit(1)


def main():
    parser = argparse.ArgumentParser(description="Lead, or wait to lead.")
    parser.add_argument("--addr", default="127.0.0.1:7379", help="the server's host:port")
    parser.add_argument("--mutex", default="leader", help="the mutex to contend for")
    # The id needs a random part: containers can share process number and host name.
    unique = f"{os.getpid()}@{socket.gethostname()}~{secrets.token_hex(8)}"
    parser.add_argument("--id", default=unique, help="the contender's id")
    parser.add_argument("--ttl", type=int, default=3000, metavar="MS",
                        help="TTL of the lease; a transition window of 1000 ms follows")
    options = parser.parse_args()
    contender = Contender(options.addr, options.mutex, options.id, options.ttl / 1000, transition=1.0)

    threading.excepthook = end_process
    # All threads block these signals. This thread waits for one of them with sigwait.
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    leading = threading.Thread(target=contender.run, args=(work,))
    leading.start()
    signal.sigwait(stops)
    contender.stop()
    leading.join()


if __name__ == "__main__":
    main()
