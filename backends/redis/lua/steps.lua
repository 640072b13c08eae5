-- The steps for what is not the usual case; and first, take note of what time and other
-- programs have done to the mutex.
--
-- Most requests find nothing to settle and nobody waiting. Their scripts do them before
-- this, in a few lines that leave in Redis and publish what these steps would: Lua makes
-- its functions anew in each run, and that alone costs as much as the rest. Replies of
-- those are short: status, token, now.

-- Redis runs a script that only reads on a replica too, and on a primary that takes no writes. So
-- the first step is a write that changes nothing: a node that takes no writes refuses it, and with
-- it the whole script. Neither replicas nor the append only file see it. Fast paths write, too.
-- Redis refuses SETRANGE when its memory is full. The script must know that before its first write
-- that needs no memory, since Redis checks the memory for none of the writes that follow one.
local full, refusal = false, redis.pcall('SETRANGE', tenure, 0, '')
if type(refusal) == 'table' then
  full = string.find(refusal.err, 'OOM ', 1, true) ~= nil
  if not full then call('SETRANGE', tenure, 0, '') end -- raises that error
  prove(queue)
end

local waiting = lock .. ':waiting' -- hash: contender -> what only our servers know of it
local ended = lock .. ':ended:'    -- and a ticket: a command ended its tenure, of which its server did not know
local window, grace, cluster = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local changed, grants, events = false, {}, {}
-- Before anything is done: a key of another type fails later steps.
local function expect(key, kind)
  local is = call('TYPE', key).ok
  if is ~= kind and is ~= 'none' then foreign(key, 'is not a ' .. kind) end
end
expect(queue, 'zset')
expect(waiting, 'hash')
audible()

local DAY = 86400000
-- Two clock readings of one script may differ by this much, in ms.
local SLACK = 20
-- A server that has not confirmed a grant for so long is taken for dead, in ms.
local LATE = 3000
-- The session of a tenure that did not come through our scripts.
local FOREIGN = '*'

-- An event goes to those who listen at other servers, and to ours with the reply.
local function event(kind, who, number, reason)
  local n = #events
  events[n + 1], events[n + 2], events[n + 3], events[n + 4] = kind, who, number, reason
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7),
    '{"at":' .. string.sub(microsText, 1, -4) .. ',"event":"' .. kind .. '","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) ..
    ',"owner":' .. cjson.encode(who) .. ',"token":' .. number ..
    ',"reason":' .. cjson.encode(reason) .. ',"via":"' .. server .. '"}')
end

-- The clock keeps tokens growing even if the record was lost.
local function nextToken()
  if tonumber(token) < micros then return microsText end
  return string.format('%.0f', token + 1)
end

local function begin(t, tr, s)
  acquired, ttl, transition, ends = now, t, tr, now + t + tr
  session, untold, changed = s, '', true
end

local function renew(t, tr, s)
  begin(t, tr, s)
  extend(owner, ends)
end

-- grant begins a tenure for who has no place in the queue.
local function grant(c, t, tr, s, ticket, reason)
  token = nextToken()
  owner, turn, till = c, '', 0
  begin(t, tr, s)
  hold(owner, ends)
  untold = ticket
  if ticket ~= '' then served = string.match(ticket, '^[^!]*') .. ' ' .. token end
  event('acquired', c, token, reason)
  call('PUBLISH', lock, 'acquired@@' .. c)
end

-- A tenure that ran out before its waiter was told, or that its server seemed too dead to tell of, does not end the
-- wait. One that a command ends does: the next look of the server finds that.
local function finish(kind, reason)
  event(kind, owner, token, reason)
  if kind == 'broken' or kind == 'released' and reason ~= 'server gone' then
    if string.sub(served, -1 - #token) == ' ' .. token then served = served .. '!' end
    if string.match(untold, '/%d+$') then call('SET', ended .. untold, '', 'PX', KEEP) end
  end
  last, owner, session, untold, turn, till = owner, '', '', '', '', 0
  acquired, ttl, transition, ends = 0, 0, 0, 0
  changed = true
end

local function vacate(kind, reason)
  call('DEL', lock)
  finish(kind, reason)
end

local function save()
  local record
  if lapse ~= 0 or served ~= '' or till ~= 0 or turn ~= '' or untold ~= '' then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse)
  elseif session ~= '' then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session)
  elseif acquired ~= 0 then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition)
  else
    record = cmsgpack.pack(token, owner, last)
  end
  call('SET', tenure, record, 'PX', KEEP)
end

local function forget(c)
  call('ZREM', queue, c)
  call('HDEL', waiting, c)
end

-- What is left of the lock, whoever set it. One without expiry is looked at daily.
local function remains()
  local ms = call('PTTL', lock)
  if ms < 0 then return DAY end
  return ms
end

-- elapsed is how many ms this script has run, or was held up.
local function elapsed()
  local later = call('TIME')
  return math.floor((later[1] * 1000000 + later[2]) / 1000) - now
end

-- follow gives the tenure the lock's end, where ms is what remains of it. Redis may have
-- been held up since it read now: the end may be taken for too late, as long as the
-- lock itself is looked at, but never for too early.
local function follow(ms)
  ms = elapsed() + ms
  transition = math.min(transition, ms)
  acquired, ttl, ends, changed = now, ms - transition, now + ms, true
end

-- The seed's guard moves the lock's end without our knowing: same tenure, new end.
local function compare()
  local ms = remains()
  local off = now + ms - ends
  -- An owner of ours counts on its end: it is shortened only if it is surely too late.
  if off > SLACK or off < -SLACK and off + elapsed() < -SLACK then follow(ms) end
end

-- A tenure that began without us gets its token now.
local function adopt(ms)
  token, owner, turn, till = nextToken(), holder, '', 0
  session, untold, transition = FOREIGN, '', 0
  follow(ms)
  forget(owner) -- the seed's winner stays in its own queue
  event('acquired', owner, token, '')
end

if owner ~= '' and holder == owner and now < ends then
  -- The usual case: the record is right.
elseif holder then
  local ms = remains()
  if holder == owner and ms <= SLACK then
    vacate('expired', '') -- Redis expires a key after its last millisecond, not at its end
  elseif holder == owner and session == FOREIGN then
    follow(ms)
  elseif full and not state[2] and holder ~= asker and not breaks then
    return { err = "OOM command not allowed when used memory > 'maxmemory'." } -- no record for somebody new
  else
    if owner ~= '' then finish(now < ends and 'released' or 'expired', '') end
    adopt(ms)
  end
elseif owner ~= '' then
  finish(now < ends and 'released' or 'expired', '')
end
if turn ~= '' and till <= now then turn, till, changed = '', 0, true end

-- Of a waiter: blocked ('b') or polling ('p'), what it asked for, by which server and
-- ticket it waits, since when, when a polling one is forgotten, and the tenure at
-- whose end it was told last.
local function describe(c)
  local w = call('HGET', waiting, c)
  if not w then return end
  local read, kind, t, tr, wserver, wticket, wsession, since, lapses, told = pcall(cmsgpack.unpack, w)
  if not read or kind ~= 'b' and kind ~= 'p' or type(since) ~= 'number' or type(lapses) ~= 'number' then
    foreign(waiting, 'has a field that holds no record of simba-resp')
  end
  return kind, t, tr, wserver, wticket, wsession, since, lapses, told
end

local function remember(c, ...) call('HSET', waiting, c, cmsgpack.pack(...)) end

-- poll makes c a polling waiter, or counts its grace anew.
local function poll(c, t, tr, since)
  local lapses = math.max(now, ends) + grace
  remember(c, 'p', t, tr, server, '', '', since, lapses, -1)
  if lapse == 0 or lapses < lapse then lapse, changed = lapses, true end
end

local function leave(c, reason)
  forget(c)
  event('left', c, '0', reason)
end

-- heldBy says whether the tenure was granted to a ticket of this server and not renewed.
local function heldBy(ticket)
  ticket = server .. '/' .. ticket
  return untold == ticket or untold == ticket .. '!'
end

-- tell notes that a ticket of this server tells its client of the tenure. If another
-- server's may be telling its own, nobody may pass the tenure on any more.
local function tell(ticket)
  local mine = server .. '/' .. ticket .. '!'
  if untold == '' or untold == mine then return end
  local foreign = string.sub(untold, 1, #server + 1) ~= server .. '/'
  if foreign and string.sub(untold, -1) == '!' then mine = '' end
  untold, changed = mine, true
end

-- A server that dies just as its waiter is chosen may seem to listen. It must confirm
-- the grant before it tells, so one that is late has told nobody. Its other waiters go
-- with it, or each would cost the living as much. If it lives after all, it sees to it
-- that they have their places again.
local function takeBack()
  local other = string.match(untold, '^(.*)/%d+$')
  if not other or other == server then return end
  if now - acquired <= LATE and call('PUBLISH', 'simba-server:' .. other, '') > 0 then return true end
  vacate('released', 'server gone')
  for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
    local kind, _, _, wserver = describe(c)
    if kind == 'b' and wserver == other then leave(c, 'server gone') end
  end
end

-- dismiss tells another server that its waiter has no place any more.
local function dismiss(c, wserver, wticket)
  if wserver ~= server then
    call('PUBLISH', 'simba-server:' .. wserver, string.sub(lock, 8, -2) .. ' ' .. c .. ' 0 ' .. wticket)
  end
end

-- handOn gives a free mutex to the first waiter that can be reached: grants it to a
-- blocked one, tells a polling one and keeps it for its turn. It returns whether
-- anybody waits.
local function handOn()
  if owner ~= '' or turn ~= '' then return true end
  local from = 0
  while true do
    local list = call('ZRANGE', queue, from, from + 15)
    if #list == 0 then
      if from == 0 then lapse = 0 end
      return from > 0
    end
    for _, c in ipairs(list) do
      local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, told = describe(c)
      local released = 'released@@' .. last
      if not kind then
        -- A contender of the seed: it queues again when it fails, and listens if it lives.
        call('ZREM', queue, c)
        local n = call('PUBLISH', lock .. ':' .. c, released)
        if window > 0 and (n > 0 or cluster) then
          turn, till, changed = c, now + window, true
          return true
        end
      elseif kind == 'b' then
        local reached = wserver == server
        if reached then
          local n = #grants
          grants[n + 1], grants[n + 2], grants[n + 3] = c, nextToken(), wticket
        else
          reached = call('PUBLISH', 'simba-server:' .. wserver,
            string.sub(lock, 8, -2) .. ' ' .. c .. ' ' .. nextToken() .. ' ' .. wticket) > 0
        end
        if reached then
          local ticket = wserver .. '/' .. wticket
          if wserver == server then ticket = ticket .. '!' end
          forget(c)
          grant(c, wttl, wtransition, wsession, ticket, 'handoff')
          return true
        end
        leave(c, 'server gone')
      elseif lapses <= now then
        leave(c, 'lapsed')
      elseif told ~= token and call('PUBLISH', lock .. ':' .. c, released) > 0 then
        if window > 0 then turn, till, changed = c, now + window, true end
        remember(c, kind, wttl, wtransition, wserver, wticket, wsession, since, math.max(lapses, now + window), token)
        if window > 0 then return true end
        from = from + 1
      else
        from = from + 1
      end
    end
  end
end

-- enqueue gives c a place, or keeps the one that it has, and returns its score.
local function enqueue(c, kind, t, tr, s, ticket, original)
  local had, httl, htransition, hserver, hticket, hsession, since = describe(c)
  local score = call('ZSCORE', queue, c)
  if not score then
    score = original
    if not score or score == '' then
      local at = micros / 1000000
      local top = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
      if top[2] then at = math.max(at, tonumber(top[2]) + 0.000001) end
      score = string.format('%.6f', at)
    end
    call('ZADD', queue, score, c)
    since = nil
  end
  -- A poll does not change what a blocked connection asked for, if that still lives.
  if kind == 'p' and had == 'b' and since and
      (hserver == server or call('PUBLISH', 'simba-server:' .. hserver, '') > 0) then
    return score
  end
  if had == 'b' and kind == 'b' then dismiss(c, hserver, hticket) end
  if kind == 'p' then
    poll(c, t, tr, since or now)
  else
    remember(c, kind, t, tr, server, ticket, s, since or now, 0, -1)
  end
  call('PEXPIRE', queue, KEEP)
  call('PEXPIRE', waiting, KEEP)
  if not since then event('queued', c, '0', '') end
  return score
end

-- reply writes the record and says how the mutex stands.
local function reply(status, position, extra, due)
  if changed then save() end
  if owner ~= '' then
    return { status, owner, token, acquired, acquired + ttl, ends, now, position, extra, due or ends, grants, events }
  end
  local kept = turn ~= '' and till or 0
  return { status, '', '0', 0, 0, kept, now, position, extra, due or kept, grants, events }
end

