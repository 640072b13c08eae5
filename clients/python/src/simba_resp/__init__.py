"""The client of simba-resp, a distributed lock server: locks, leadership and periodic work.

    client = simba_resp.Client(redis.Redis(port=7379))
    with client.lock("report") as lock:
        write(lock.token)

simba_resp.asyncio has the same for asyncio.

A tenure is one unbroken ownership of a mutex. Its fencing token is larger than that of every earlier
tenure of the mutex. A lease is the owner's right to the mutex for a limited time. Each renewal begins a
new lease of the same tenure. The client renews by itself.

After a freeze of the process or the machine, the lease may have ended. held and check read the clock, so
they are right at once. A process can also be frozen right after its check. So pass the token to the
resource, which must refuse a token smaller than the largest that it has seen.
"""

from ._engine import Final, State
from ._sync import Client, Lock
from ._tenure import Tenure
from .errors import Closed, InUse, Lost, NotAcquired, Owner, SimbaError, Unavailable

__all__ = ["Client", "Closed", "Final", "InUse", "Lock", "Lost", "NotAcquired", "Owner", "SimbaError"]
__all__ += ["State", "Tenure", "Unavailable"]
