-- What every script begins with: read the mutex.
--
-- KEYS  1 lock: the owner's id, expires with the lease (shared with Simba on the JVM).
--         As in Simba's own scripts, the other keys follow from it, in the same slot.
-- ARGV  1 this server's id   2 handoff window, ms   3 queue grace, ms   4 '1' in a cluster
--       5 when the server gives up waiting for the reply, ms of this clock
local lock, server, call = KEYS[1], ARGV[1], redis.call
local queue = lock .. ':contender' -- zset of contenders by arrival (shared likewise)
local tenure = lock .. ':tenure'   -- the record below; outlives the lock, so that tokens grow

-- Long enough, in ms, that no lease or wait outlives what belongs to it: queues and
-- records are written anew at least once in a lease, which is at most two days.
local KEEP = '345600000'

local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
-- What the server was told since may rest on its not having been done: a late RELEASE
-- would end the tenure that was granted to its contender meanwhile.
if now >= tonumber(ARGV[5]) then return { 'late', '0', now } end -- both are whole ms, rounded down
-- The same in decimal. Lua is slow to write numbers, and writes large ones as 1.8e+15.
local microsText = time[1] .. string.sub('00000' .. time[2], -6)

-- refuse ends the script by an error that an operator must see to. A node that takes no writes
-- says so instead: what it has may be old. See steps.lua.
local function refuse(why)
  prove(queue)
  error(why)
end

-- foreign refuses a key that other programs wrote. Nothing of theirs is overwritten.
local function foreign(key, what) refuse('key ' .. key .. ' ' .. what .. ': move it away') end

-- audible does so if the user may not publish what the script will. Redis tells since 7.0;
-- before, a change is made whose notice is refused, and a record of it may be missing.
local function audible()
  local may = redis.acl_check_cmd
  if may and not (may('PUBLISH', lock, '') and may('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '')) then
    refuse('the user may not publish to the channels ' .. lock .. ' and simba-events:' .. string.sub(lock, 7))
  end
end

local state = call('MGET', lock, tenure)
local holder = state[1]
-- MGET takes a key of another type for a missing one.
if not holder and call('EXISTS', lock) == 1 then foreign(lock, 'is not a string') end
if not state[2] and call('EXISTS', tenure) == 1 then foreign(tenure, 'is not a string') end
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
local token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse
if state[2] then
  local read
  read, token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse = pcall(cmsgpack.unpack, state[2])
  if not read or type(token) ~= 'string' or not tonumber(token) or type(owner) ~= 'string' or type(last) ~= 'string' or
      type(transition or 0) ~= 'number' or type(lapse or 0) ~= 'number' then
    foreign(tenure, 'holds no record of simba-resp')
  end
end
-- A record ends with the last field that is not what it mostly is: see save.
token, owner, last, session, untold, turn = token or '0', owner or '', last or '', session or '', untold or '', turn or ''
served = served or ''
acquired, ttl, transition, till, lapse = acquired or 0, ttl or 0, transition or 0, till or 0, lapse or 0
local ends = acquired + ttl + transition

-- The contender that asks, '' = none. See look_fast.lua and queue_first.lua.
local asker = ARGV[6]

-- Whether this is BREAK, which a full Redis takes whoever the owner is.
local breaks = false

-- hold sets the lock until an end by the clock that now is of. Redis may have been held up
-- since: an expiry counted from here could outlive the tenure.
local function hold(who, till)
  if redis.pcall('SET', lock, who, 'PXAT', till .. '').err then -- before Redis 6.2
    call('SET', lock, who, 'PX', KEEP)
    call('PEXPIREAT', lock, till .. '')
  end
end

-- extend moves the end of a lock that is there. Redis takes PEXPIREAT when its memory is full,
-- and then every write of the same script: it must be the first write of a renewal.
local function extend(who, till)
  if call('PEXPIREAT', lock, till .. '') == 0 then hold(who, till) end
end
