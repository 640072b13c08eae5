"""Sends a request every 20 ms to the leader that Sentinels name.

Arguments: host:port,… and a key. It prints a line for each request: when it began and ended, in
nanoseconds since 1970, and "ok" or the error.
"""

import sys
import time

from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel

addresses = [address.rsplit(":", 1) for address in sys.argv[1].split(",")]
sentinel = Sentinel([(host, int(port)) for host, port in addresses], socket_timeout=2)
redis = sentinel.master_for(
    "simba",
    retry=Retry(ExponentialBackoff(cap=0.5, base=0.01), 8),
    retry_on_error=[ConnectionError, TimeoutError],
)
while True:
    begun = time.time_ns()
    result = "ok"
    try:
        redis.set(sys.argv[2], "redis-py", px=600_000)
    except Exception as err:
        result = repr(err).replace("\n", " ")
    print(begun, time.time_ns(), result, flush=True)
    time.sleep(0.02)
