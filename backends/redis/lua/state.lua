-- What every script begins with: read the mutex.
--
-- KEYS  all in one slot
--   1 lock: the owner's id, expires with the lease (shared with Simba on the JVM)
--   2 queue: zset of contenders by arrival (shared with Simba up to 3.1; 3.2 and 3.3 delete it)
--   3 tenure: the record below; outlives the lock
--   4 waiting: hash: contender -> what only our servers know of it
--   5 ended: hash of tickets: a command ended the tenure before its server knew of it
--   6 fence: the last token that anybody took (shared with Simba from 3.3)
--   7 mark: the token of the tenure, expires with the lock (shared likewise)
-- ARGV  1 this server's id   2 handoff window, ms   3 queue grace, ms   4 '1' in a cluster
--       5 when the server gives up waiting for the reply, ms of this clock
--       6 how many ms after a lease an idle fence goes; '0' = never
local lock, queue, tenure, waiting, ended, fence, mark = unpack(KEYS)
local server, call = ARGV[1], redis.call

-- Long enough, in ms, that no lease or wait outlives what belongs to it: queues and
-- records are written anew at least once in a lease, which is at most two days.
local KEEP = '345600000'

local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
-- What the server was told since may rest on its not having been done: a late RELEASE
-- would end the tenure that was granted to its contender meanwhile.
if now >= tonumber(ARGV[5]) then return { 'late', '0', now } end -- both are whole ms, rounded down

-- shown: the mark as it is.
local state = call('MGET', lock, tenure, fence, mark)
local holder, shown = state[1], state[4]
-- nobody: there is neither an owner nor a waiter, nor the token of a tenure.
local nobody = not holder and call('EXISTS', lock, mark, queue, waiting) == 0
-- theirs: a key that another program wrote. MGET takes one of another type for a missing one.
local theirs, what = nil, 'is not a string'
if not nobody then
  if not shown and call('EXISTS', mark) == 1 then theirs = mark end
  if not holder and call('EXISTS', lock) == 1 then theirs = lock end
end
if not state[3] and call('EXISTS', fence) == 1 then theirs = fence end
if not state[2] and call('EXISTS', tenure) == 1 then theirs = tenure end
-- token: in decimal.
-- last: the owner before the mutex became free.
-- session: the connection that the lease is bound to, or ''.
-- untold: the ticket that was granted the mutex while it waited, until its contender
--   renews; '!' at its end = its server knows, and its client may. Without, nobody
--   was told yet, so the tenure can be taken back.
-- served: the ticket that was granted the mutex last, and the token, however that tenure went;
--   '!' at its end = a command ended it.
-- turn: the polling contender for whom the free mutex is kept, until till.
-- lapse: no polling contender is forgotten before; 0 = none waits.
-- unheard: another program released the last tenure that ended, in its lease, and no look has taken
--   in the message to the next contender. A fast renewal or release drops it.
local token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse, unheard
if state[2] then
  local read
  read, token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse, unheard = pcall(cmsgpack.unpack, state[2])
  if not read or type(token) ~= 'string' or not tonumber(token) or type(owner) ~= 'string' or type(last) ~= 'string' or
      type(transition or 0) ~= 'number' or type(lapse or 0) ~= 'number' then
    theirs, what = tenure, 'holds no record of simba-resp'
  end
end
if theirs then
  prove(queue) -- see refuse in steps.lua
  error('key ' .. theirs .. ' ' .. what .. ': move it away')
end
-- A record ends with the last field that is not what it mostly is: see save.
token, owner, last, session, untold, turn = token or '0', owner or '', last or '', session or '', untold or '', turn or ''
served = served or ''
acquired, ttl, transition, till, lapse = acquired or 0, ttl or 0, transition or 0, till or 0, lapse or 0
local ends = acquired + ttl + transition

-- The contender that asks, '' = none. See look_fast.lua and queue_first.lua.
local asker = ARGV[7]

-- Whether this is BREAK, which a full Redis takes whoever the owner is.
local breaks = false
