#!/usr/bin/env python3
"""A lock around work in short pieces, with redis-py 4.3 to 8 (Debian: python3-redis).

Start a server with `make run`, and this program in two other terminals:

    python3 lock.py

The program renews the lease before each piece of work, so it needs no thread. For pieces that may
take longer than the lease see leader.py, which renews in a thread.
"""

import argparse
import os
import random
import secrets
import signal
import socket
import sys
import time

import redis

# A clock that nobody can set. On Linux it also runs while the machine is suspended.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# All times are in seconds.
TRANSITION = 2.0
WAIT = 30.0  # how long one ACQUIRE may block
TIMEOUT = 1.0  # how long any other request may take
PIECE = 1.5  # how long a piece of work may take: much shorter than the lease


def now():
    return time.clock_gettime(CLOCK)


class Lost(Exception):
    """The lease has ended, or ends too soon for another piece of work."""


class Lock:
    def __init__(self, addr, mutex, name, ttl):
        self.mutex, self.name, self.ttl = mutex, name, ttl
        host, port = addr.rsplit(":", 1)
        # The socket timeout must exceed WAIT for the requests that block.
        self._waiting, self._redis = (
            redis.Redis(host=host, port=int(port), decode_responses=True,
                        socket_timeout=timeout, socket_connect_timeout=TIMEOUT)
            for timeout in (WAIT + TIMEOUT, TIMEOUT)
        )

    def acquire(self):
        """Wait until we own the mutex. Repeat a request that fails or times out."""
        while True:
            try:
                answer = self._ask(self._waiting, "SIMBA.ACQUIRE", "WAIT", int(WAIT * 1000))
            except redis.RedisError as err:
                print("cannot ask the server:", err, flush=True)
                time.sleep(0.5 + random.random())
                continue
            if answer["status"] in ("acquired", "renewed"):
                self.token = answer["token"]
                self._until = 0.0  # not known yet: the lease began at some time during the wait
                return

    def renew(self):
        """Renew the lease. Raise Lost unless the lease lasts for another piece of work."""
        sent = now()
        try:
            answer = self._ask(self._redis, "SIMBA.GUARD", "TOKEN", self.token)
        except redis.RedisError as err:
            print("not renewed:", err, flush=True)  # the lease may still be long enough
        else:
            if answer["status"] != "renewed":
                raise Lost("it has ended at the server")
            # The lease counts from before the request was sent. The margin of 1 % is for clocks
            # that run at different speeds.
            self._until = sent + (self.ttl + TRANSITION) * 0.99
        if now() + PIECE > self._until:
            raise Lost("the lease ends too soon")

    def release(self):
        """Release the mutex, or leave its queue. Send no other request after it."""
        try:
            self._redis.execute_command("SIMBA.RELEASE", self.mutex, self.name)
        except redis.RedisError as err:
            print("not released, it ends with its lease:", err, flush=True)

    def _ask(self, client, command, *options):
        """Send a request and return its reply, a record. In RESP3 a record is a dict, in RESP2 a
        list with each name before its value."""
        reply = client.execute_command(command, self.mutex, self.name, int(self.ttl * 1000),
                                       "TRANSITION", int(TRANSITION * 1000), *options)
        return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


def work(token):
    # Pass the token to the resource, which must refuse a token smaller than one it has seen.
    print("working", flush=True)
    time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description="Do some work under a lock.")
    parser.add_argument("--addr", default="127.0.0.1:7379", help="the server's host:port")
    parser.add_argument("--mutex", default="job", help="the mutex to lock")
    # The id needs a random part: containers can share process number and host name.
    unique = f"{os.getpid()}@{socket.gethostname()}~{secrets.token_hex(8)}"
    parser.add_argument("--id", default=unique, help="the contender's id")
    parser.add_argument("--ttl", type=int, default=5000, metavar="MS",
                        help="TTL of the lease; a transition window of 2000 ms follows")
    parser.add_argument("--pieces", type=int, default=10, help="how many pieces of work to do; each takes a second")
    options = parser.parse_args()

    for ends in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends, lambda *_: sys.exit())  # raises SystemExit, also during a wait or sleep
    lock = Lock(options.addr, options.mutex, options.id, options.ttl / 1000)
    done = 0
    try:
        while done < options.pieces:
            lock.acquire()
            print(f"acquired, token {lock.token}", flush=True)
            try:
                while done < options.pieces:
                    lock.renew()
                    work(lock.token)
                    done += 1
            except Lost as err:
                print("lost:", err, flush=True)
    finally:
        lock.release()


if __name__ == "__main__":
    main()
