-- The beginning of every script. It ends a script after the script's deadline, reads the state of
-- the mutex, and refuses keys that another program wrote.
--
-- KEYS  all in one slot
--   1 lock: the owner's id, expires with the lease (shared with Simba on the JVM)
--   2 queue: zset of contenders by arrival (shared with Simba up to 3.1; 3.2 and 3.3 delete it)
--   3 tenure: the record below; outlives the lock
--   4 waiting: hash of contenders, with their records: see readWaiter in waiters.lua
--   5 endedTickets: hash of tickets whose tenure a command ended before their server received the
--     grant
--   6 fence: the largest token so far (shared with Simba from 3.3)
--   7 tokenKey: the token of the tenure, expires with the lock (shared with Simba from 3.3)
-- ARGV  1 this server's id   2 handoff window, ms   3 queue grace, ms
--       4 flags: 'cluster '; 'closed ' if the server's checks refuse Redis: no tenure may begin;
--         'plain ' if notices also go to channels without braces
--       5 the deadline: when the server stops waiting for the reply, in ms of Redis' clock
--       6 how many ms the fence outlives the last lease; '0' = it lives for ever
local lock, queue, tenure, waiting, endedTickets, fence, tokenKey = unpack(KEYS)
local server, call = ARGV[1], redis.call
local closed = string.find(ARGV[4], 'closed', 1, true)

-- KEEP: how many ms (four days) records and queues live after their last write. They outlive every
-- lease and wait. A lease is two days at most, and each grant and renewal writes the record.
-- reconcile.lua extends the expiry of the queue and the waiters' records.
local KEEP = '345600000'

local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
-- After its deadline the script does nothing. The server has returned an error, and the client may
-- have sent other requests since. A late release could end the tenure of a later acquire.
if now >= tonumber(ARGV[5]) then return { 'late', '', '0', 0, 0, 0, now, '' } end -- now and the deadline are rounded down to ms

local state = call('MGET', lock, tenure, fence, tokenKey)
-- lockOwner, lockToken: the values of the keys lock and tokenKey. The record may differ.
local lockOwner, lockToken = state[1], state[4]
-- idle: the keys lock, token, queue and waiting are all missing. The record may still name an
-- owner.
local idle = not lockOwner and call('EXISTS', lock, tokenKey, queue, waiting) == 0
-- foreignKey: a key that another program wrote. MGET returns nothing for a key that is not a
-- string.
local foreignKey, problem = nil, 'is not a string'
if not idle then
  if not lockToken and call('EXISTS', tokenKey) == 1 then foreignKey = tokenKey end
  if not lockOwner and call('EXISTS', lock) == 1 then foreignKey = lock end
end
if not state[3] and call('EXISTS', fence) == 1 then foreignKey = fence end
if not state[2] and call('EXISTS', tenure) == 1 then foreignKey = tenure end
-- The record of the mutex:
--   token: the last token, in decimal
--   owner: '' = free
--   last: the owner before the mutex became free
--   acquired, ttl, transition: the windows of the lease, in ms
--   session: the connection that the lease is bound to, or ''
--   granted: the ticket (server id/number) that was granted the mutex while it waited, until its
--     contender renews. '!' at its end = the ticket's server has received the grant, so its client
--     may have it too. Without '!' the tenure can be revoked.
--   reserved, reservedUntil: the polling contender for which the free mutex is reserved, and until
--     when; '{}' = reserved for outsiders
--   lastGrant: the last ticket that was granted the mutex while it waited, a space and the token.
--     It stays after that tenure. '!' at its end = a command ended the tenure.
--   nextLapse: no polling waiter lapses before that; 0 = no polling waiter
--   unnotified: another program released the last tenure before the end of its lease, and no
--     reconciliation has handled its message to the next contender. A fast renewal or release
--     clears it.
--   sinceOpen: how many tenures ended since our scripts last left the free mutex to outsiders, see
--     openToOutsiders in waiters.lua
local token, owner, last, acquired, ttl, transition, session, granted, reserved, reservedUntil, lastGrant, nextLapse, unnotified, sinceOpen
if state[2] then
  local read
  read, token, owner, last, acquired, ttl, transition, session, granted, reserved, reservedUntil, lastGrant, nextLapse, unnotified, sinceOpen =
    pcall(cmsgpack.unpack, state[2])
  if not read or type(token) ~= 'string' or not tonumber(token) or type(owner) ~= 'string' or type(last) ~= 'string' or
      type(transition or 0) ~= 'number' or type(nextLapse or 0) ~= 'number' then
    foreignKey, problem = tenure, 'holds no record of simba-resp'
  end
end
if foreignKey then
  requireWritable(queue) -- see refuse in steps.lua
  error('key ' .. foreignKey .. ' ' .. problem .. ': move it away')
end
-- A record omits trailing fields that have their default: see save in steps.lua.
token, owner, last, session, granted, reserved = token or '0', owner or '', last or '', session or '', granted or '', reserved or ''
lastGrant, sinceOpen = lastGrant or '', sinceOpen or 0
acquired, ttl, transition, reservedUntil, nextLapse = acquired or 0, ttl or 0, transition or 0, reservedUntil or 0, nextLapse or 0
local ends = acquired + ttl + transition

-- asker: the contender of the request. reconcile_fast.lua and queue_prelude.lua set it to '', since
-- their requests have none.
local asker = ARGV[7]

-- breaks: whether this is the script break, see break_prelude.lua. Another program may have set an
-- owner that has no record yet. On a full Redis, break makes such a record for any owner. Other
-- scripts make it only if the owner is asker.
local breaks = false
