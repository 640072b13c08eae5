-- The functions that change the tenure, for every request that no fast path handles. The end of
-- this file brings the record up to date: a lease may have expired, and other programs may have
-- changed the mutex.
--
-- Most requests find nothing to repair and nobody waiting. A fast path handles these in a few lines
-- before this file. It writes and publishes the same, but leaves out some repairs. A fast renewal
-- clears `unnotified`, and does not raise the fence. The fast paths of acquire and reconcile do not
-- compare the fence with the token to find unseen tenures. A fast path's reply is short, see
-- parseReply in reply.go. Only the fast path of reconcile returns a complete reply.
--
-- Fast paths exist because Lua creates the functions of this file anew in each run. Without its fast
-- path, a request takes 1.2 to 2.6 times as long.

-- refuse ends the script with an error for an operator. On a node that takes no writes, it fails
-- with Redis' error instead, because the node's data may be old.
local function refuse(why)
  requireWritable(queue)
  error(why)
end

-- refuseKey refuses a key that another program wrote. Our scripts never overwrite such a key.
local function refuseKey(key, problem) refuse('key ' .. key .. ' ' .. problem .. ': move it away') end

-- requirePublish fails if the Redis user may not publish to the mutex's channels. Redis before 7.0
-- cannot check that in advance. There PUBLISH may fail between a change and the write of its
-- record.
local function requirePublish()
  local may = redis.acl_check_cmd
  if may and not (may('PUBLISH', lock, '') and may('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '')) then
    refuse('the user may not publish to the channels ' .. lock .. ' and simba-events:' .. string.sub(lock, 7))
  end
end

-- Redis also runs scripts that only read on replicas, and on a primary that takes no writes. So the
-- first step is a write that changes nothing: it fails on a node that takes no writes. Neither
-- replicas nor the append only file get this write. Each fast path has a write too.
--
-- A full Redis refuses SETRANGE. The script must try SETRANGE before its first write that needs no
-- memory: after such a write Redis no longer checks the memory.
local full, refusal = false, redis.pcall('SETRANGE', tenure, 0, '')
if type(refusal) == 'table' then
  full = string.find(refusal.err, 'OOM ', 1, true) ~= nil
  if not full then call('SETRANGE', tenure, 0, '') end -- raises that error
  requireWritable(queue)
end

local window, grace = tonumber(ARGV[2]), tonumber(ARGV[3])
local function hasFlag(name) return string.find(ARGV[4], name, 1, true) ~= nil end
local cluster, plain = hasFlag('cluster'), hasFlag('plain')
-- changed: finish must save the record. grants and events are lists in the reply.
local changed, grants, events = false, {}, {}
-- announceFree: finish announces the mutex if it is free then. A lease that only expired needs no
-- notice.
local announceFree = false

-- expectType refuses a key of another type, before a later step fails on it. It returns whether the
-- key exists.
local function expectType(key, kind)
  local is = call('TYPE', key).ok
  if is ~= kind and is ~= 'none' then refuseKey(key, 'is not a ' .. kind) end
  return is == kind
end
expectType(queue, 'zset')
expectType(endedTickets, 'hash')
local hasRecords = expectType(waiting, 'hash')
requirePublish()

-- microsText: micros in decimal. Lua formats numbers slowly, and large ones as 1.8e+15.
local microsText = time[1] .. string.sub('00000' .. time[2], -6)

-- parseToken parses a key's token. Lua's numbers are exact up to 2^53.
local function parseToken(key, text)
  local n = tonumber(text)
  if not n or n >= 9007199254740992 or string.find(text, '%D') then refuseKey(key, 'holds no token') end
  return n
end
-- fenceToken: the fence as a number.
local fenceToken = state[3] and parseToken(fence, state[3]) or 0

-- nextToken returns the token of the next tenure. The token is at least the clock's time in
-- microseconds, so tokens grow even if Redis has lost all keys.
local function nextToken()
  local last = math.max(fenceToken, tonumber(token))
  if last < micros then return microsText end
  return string.format('%.0f', last + 1)
end

-- raiseFence sets the fence to the tenure's token, unless the fence is as large already. If fences
-- expire, the fence lives until ARGV[6] ms after till, the end of the lease. renewed: a renewal has
-- moved till.
local function raiseFence(till, renewed)
  local n = tonumber(token)
  if n > fenceToken then
    fenceToken = n
    if ARGV[6] == '0' then
      call('SET', fence, token)
    else
      call('SET', fence, token, 'PX', till - now + ARGV[6])
    end
  elseif renewed and ARGV[6] ~= '0' then
    call('PEXPIRE', fence, till - now + ARGV[6])
  end
end

-- setUntil sets a key that expires at an instant. A relative expiry could outlive the lease,
-- because the script may have been delayed since it read now.
local function setUntil(key, value, till)
  if redis.pcall('SET', key, value, 'PXAT', till).err then -- before Redis 6.2
    call('SET', key, value, 'PX', KEEP)
    call('PEXPIREAT', key, till)
  end
end

-- setLock sets the lock and the tenure's token until the lease's end.
local function setLock(who, till)
  setUntil(lock, who, till .. '')
  setUntil(tokenKey, token, till .. '')
  raiseFence(till)
end

-- extendLock moves the end of a lock. A full Redis accepts PEXPIREAT, and then every later write of
-- the same script. So PEXPIREAT must be the first write of a renewal.
local function extendLock(who, till)
  if call('PEXPIREAT', lock, till .. '') == 0 then setUntil(lock, who, till .. '') end
  if call('PEXPIREAT', tokenKey, till .. '') == 0 then setUntil(tokenKey, token, till .. '') end
  raiseFence(till, true)
end

local DAY = 86400000
-- SLACK: by how many ms two readings of the clock in one script may differ.
local SLACK = 20
-- LATE: if a server does not confirm a grant within this many ms, it counts as dead.
local LATE = 3000
-- FOREIGN: the session of a tenure that began without our scripts.
local FOREIGN = '*'

-- event adds an event to the reply for this server, and publishes it for other servers.
local function event(kind, who, number, reason)
  local n = #events
  events[n + 1], events[n + 2], events[n + 3], events[n + 4] = kind, who, number, reason
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7),
    '{"at":' .. string.sub(microsText, 1, -4) .. ',"event":"' .. kind .. '","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) ..
    ',"owner":' .. cjson.encode(who) .. ',"token":' .. number ..
    ',"reason":' .. cjson.encode(reason) .. ',"via":"' .. server .. '"}')
end

local function startWindows(t, tr, s)
  acquired, ttl, transition, ends = now, t, tr, now + t + tr
  session, granted, changed = s, '', true
end

-- hasSubscriber returns whether anybody subscribes to a channel by its name. The result of PUBLISH
-- would also count servers that subscribe to a pattern.
local function hasSubscriber(channel) return call('PUBSUB', 'NUMSUB', channel)[2] > 0 end

-- Simba before 3.0.2 subscribes to plainChannel and to plainContenderChannel(c). The scripts of these
-- versions publish to the names with braces.
local plainChannel = 'simba:' .. string.sub(lock, 8, -2)
local function plainContenderChannel(c) return plainChannel .. ':' .. c end

-- JITTER: a contender of Simba asks again at most this many ms after the end of the lease that it
-- saw last. Simba's own bound is 1000.
local JITTER = 1100

local function isSimbas(record) return string.sub(record, 1, 2) == '\161x' end

-- noteSeen notes, before the lease changes, which of Simba's contenders have seen it. A contender
-- with an earlier note asks again only when the lease that it saw is over, and if it lives. If nobody
-- waits, noteSeen resets sinceOpen. A release by Simba may have emptied the queue, but our waiters
-- have their records.
local function noteSeen()
  local list = call('ZRANGE', queue, 0, 15)
  if #list == 0 and not hasRecords then sinceOpen = 0 end
  if #list == 0 or full then return end
  for i, record in ipairs(call('HMGET', waiting, unpack(list))) do
    local seen = record and isSimbas(record) and select(2, cmsgpack.unpack(record))
    if not record or seen and seen + JITTER <= now and (cluster or hasSubscriber(plainContenderChannel(list[i]))) then
      call('HSET', waiting, list[i], cmsgpack.pack('x', ends, 0, '', '', '', now, ends + JITTER + grace, -1, 0))
      call('PEXPIRE', waiting, KEEP)
    end
  end
end

local function renew(t, tr, s)
  noteSeen()
  startWindows(t, tr, s)
  extendLock(owner, ends)
end

-- grant begins a tenure. c has no queue entry. ticket is '' or the ticket by which c waited.
local function grant(c, t, tr, s, ticket, reason)
  token = nextToken()
  owner, reserved, reservedUntil = c, '', 0
  startWindows(t, tr, s)
  setLock(owner, ends)
  granted = ticket
  if ticket ~= '' then lastGrant = string.match(ticket, '^[^!]*') .. ' ' .. token end
  event('acquired', c, token, reason)
  call('PUBLISH', lock, 'acquired@@' .. c)
end

-- recordEnd notes the end of the tenure in the record. The owner may be a waiter whose server has
-- not received the grant. If a command ended the tenure, that wait has ended too. The server finds
-- this in lastGrant or endedTickets when it reconciles. If the lease expired, or the server seemed
-- dead, the waiter waits on.
local function recordEnd(kind, reason)
  sinceOpen = sinceOpen + 1
  noteSeen()
  event(kind, owner, token, reason)
  if kind == 'broken' or kind == 'released' and reason ~= 'server gone' then
    if string.sub(lastGrant, -1 - #token) == ' ' .. token then lastGrant = lastGrant .. '!' end
    if string.match(granted, '/%d+$') then
      call('HSET', endedTickets, granted, '')
      call('PEXPIRE', endedTickets, KEEP)
    end
  end
  last, owner, session, granted, reserved, reservedUntil = owner, '', '', '', '', 0
  acquired, ttl, transition, ends = 0, 0, 0, 0
  unnotified, changed = false, true
end

local function endTenure(kind, reason)
  call('DEL', lock, tokenKey)
  recordEnd(kind, reason)
  announceFree = kind ~= 'expired'
end

-- endReservation leaves a free mutex to the next waiter. A notice needs an old owner, even if our
-- scripts know none.
local function endReservation()
  if last == '' then last = reserved end
  reserved, reservedUntil, changed, announceFree = '', 0, true, true
end

-- save writes the record, without trailing fields that have their default.
local function save()
  local record
  if unnotified or sinceOpen ~= 0 then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session, granted, reserved, reservedUntil, lastGrant, nextLapse,
      unnotified or false, sinceOpen)
  elseif nextLapse ~= 0 or lastGrant ~= '' or reservedUntil ~= 0 or reserved ~= '' or granted ~= '' then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session, granted, reserved, reservedUntil, lastGrant, nextLapse)
  elseif session ~= '' then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session)
  elseif acquired ~= 0 then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition)
  else
    record = cmsgpack.pack(token, owner, last)
  end
  call('SET', tenure, record, 'PX', KEEP)
end

-- dequeue removes the queue entry of c, without an event.
local function dequeue(c)
  call('ZREM', queue, c)
  call('HDEL', waiting, c)
end

-- lockRemaining returns how many ms the lock still lives. A lock without expiry counts as a lock of
-- one day, so servers reconcile it daily.
local function lockRemaining()
  local ms = call('PTTL', lock)
  if ms < 0 then return DAY end
  return ms
end

-- elapsed returns how many ms have passed since the script read now.
local function elapsed()
  local later = call('TIME')
  return math.floor((later[1] * 1000000 + later[2]) / 1000) - now
end

-- adoptEnd sets the tenure's end to the lock's end. ms is the result of lockRemaining. If the
-- script was delayed, the end is too late, never too early. That is safe, since later scripts check
-- the lock itself.
local function adoptEnd(ms)
  ms = elapsed() + ms
  transition = math.min(transition, ms)
  acquired, ttl, ends, changed = now, ms - transition, now + ms, true
  if call('PEXPIREAT', tokenKey, ends .. '') == 0 then setUntil(tokenKey, token, ends .. '') end
  raiseFence(ends, true)
end

-- compareEnds adopts the lock's end if it differs from the record's end. Simba's guard script moves
-- the lock's end within a tenure. An owner of ours relies on the record's end, so compareEnds
-- shortens the lease only if that end is certainly too late.
local function compareEnds()
  local ms = lockRemaining()
  local off = now + ms - ends
  if off > SLACK or off < -SLACK and off + elapsed() < -SLACK then adoptEnd(ms) end
end

-- sameTenure matters if lock and record name the same owner: it says whether they mean the same
-- tenure. It is false if Simba from 3.3 set another token, or if the fence shows a later tenure.
local sameTenure = lockToken == token or not lockToken and fenceToken <= tonumber(token)
-- unseen: a tenure began or ended without our scripts.
-- foreignRelease: another program released the mutex.
-- onlyExpired: a lease of ours expired, and no other program has taken a token since.
local unseen, foreignRelease, onlyExpired = false, false, false

-- adoptTenure records a tenure that began without our scripts. It keeps a token that Simba from 3.3
-- has set. Any other tenure gets the next token.
local function adoptTenure(ms)
  if lockToken and parseToken(tokenKey, lockToken) > tonumber(token) then
    token = lockToken
  else
    token = nextToken()
    call('DEL', tokenKey)
  end
  owner, reserved, reservedUntil = lockOwner, '', 0
  session, granted, transition = FOREIGN, '', 0
  adoptEnd(ms)
  dequeue(owner) -- Simba's acquire script leaves the new owner in the queue
  event('acquired', owner, token, '')
  unseen = true
end

if owner ~= '' and lockOwner == owner and now < ends and sameTenure then
  -- The usual case: the record is right.
elseif lockOwner then
  local ms = lockRemaining()
  if lockOwner == owner and sameTenure and ms <= SLACK then
    endTenure('expired', '') -- Redis expires a key after its last millisecond, not at its end
  elseif lockOwner == owner and sameTenure and (session == FOREIGN or lockToken) then
    adoptEnd(ms) -- Simba's guard script moves both ends, and so does a renewal while a slot moves
  elseif full and not state[2] and lockOwner ~= asker and not breaks then
    return { err = "OOM command not allowed when used memory > 'maxmemory'." } -- no memory for a new record
  else
    if owner ~= '' then
      local early = now < ends
      recordEnd(early and 'released' or 'expired', '')
      unnotified = early
    end
    adoptTenure(ms)
  end
else
  if owner ~= '' then
    unseen, foreignRelease = true, now < ends
    onlyExpired = not foreignRelease and session ~= FOREIGN and fenceToken <= tonumber(token)
    recordEnd(foreignRelease and 'released' or 'expired', '')
    unnotified = foreignRelease
  elseif fenceToken > tonumber(token) then
    token, unseen, changed = state[3], true, true -- tenures began and ended without our scripts
    if reserved ~= '' then endReservation() end
  end
  if lockToken then -- a release of Simba up to 3.2 leaves this key
    parseToken(tokenKey, lockToken)
    call('DEL', tokenKey)
  end
end
if reserved ~= '' and reservedUntil <= now then
  local record = call('HGET', waiting, reserved)
  if record and isSimbas(record) then dequeue(reserved) end -- it has missed its turn
  endReservation()
end

