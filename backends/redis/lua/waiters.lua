-- The steps that concern who waits.

-- Of a waiter: blocked ('b') or polling ('p'), what it asked for, by which server and
-- ticket it waits, since when, when a polling one is forgotten, the tenure at whose
-- end it was told last, and its order in the queue. Of a contender of Simba that was passed over
-- ('x') only the last three.
local function describe(c)
  local w = call('HGET', waiting, c)
  if not w then return end
  local read, kind, t, tr, wserver, wticket, wsession, since, lapses, told, score = pcall(cmsgpack.unpack, w)
  if not read or kind ~= 'b' and kind ~= 'p' and kind ~= 'x' or type(since) ~= 'number' or type(lapses) ~= 'number' or
      not tonumber(score) then
    foreign(waiting, 'has a field that holds no record of simba-resp')
  end
  return kind, t, tr, wserver, wticket, wsession, since, lapses, told, score
end

local function remember(c, ...) call('HSET', waiting, c, cmsgpack.pack(...)) end

-- Others take places from waiters of ours: a release of Simba 3.2 or 3.3 deletes the queue, one of
-- before takes its first out. restore gives them back. Another's tenure ended then, so a turn is over.
local function restore()
  local lost = false
  for _, c in ipairs(call('HKEYS', waiting)) do
    if not call('ZSCORE', queue, c) then
      local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, _, score = describe(c)
      if kind == 'x' then
        call('HDEL', waiting, c) -- Simba's own affair
      else
        remember(c, kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, -1, score)
        call('ZADD', queue, score, c)
      end
      lost = true
    end
  end
  call('PEXPIRE', queue, KEEP)
  if lost and turn ~= '' then endTurn() end
end
-- listens counts those who subscribe to a channel by its name. PUBLISH counts servers, too, which
-- hear the channels of all mutexes by a pattern.
local function listens(channel) return call('PUBSUB', 'NUMSUB', channel)[2] > 0 end

-- Before 3.0.2 Simba listens where nobody publishes: on the same channels without braces.
local deaf = 'simba:' .. string.sub(lock, 8, -2)
-- Contenders without a record do not get their places back. They queue again when they hear this.
if passed and call('EXISTS', queue) == 0 and (cluster or listens(deaf)) then
  redis.pcall('PUBLISH', deaf, 'released@@' .. last) -- users may have no right to it
end
-- A queue that others made anew does not expire.
if waits and (passed and not spent or call('PTTL', queue) < 0) then restore() end

-- poll makes c a polling waiter, or counts its grace anew.
local function poll(c, t, tr, since, score)
  local lapses = math.max(now, ends) + grace
  remember(c, 'p', t, tr, server, '', '', since, lapses, -1, score)
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

local function deafChannel(c) return deaf .. ':' .. c end

-- listening reports whether a contender of Simba may hear of its turn. In a cluster it may listen at
-- another node.
local function listening(c) return cluster or listens(lock .. ':' .. c) or listens(deafChannel(c)) end

-- offer tells it that the mutex is free, unless it has heard that where Simba tells it.
local function offer(c, heard)
  if not listening(c) then return false end
  if not heard then call('PUBLISH', lock .. ':' .. c, 'released@@' .. last) end
  redis.pcall('PUBLISH', deafChannel(c), 'released@@' .. last) -- users may have no right to it
  return true
end

-- handOn gives a free mutex to the first waiter that can be reached: grants it to a
-- blocked one, tells a polling one and keeps it for its turn. Who asks for it in this
-- step needs not be told. It returns whether anybody waits.
local function handOn(asks)
  if owner ~= '' or turn ~= '' then return true end
  local from = 0
  while true do
    local list = call('ZRANGE', queue, from, from + 15)
    if #list == 0 then
      if from == 0 then lapse = 0 end
      return from > 0
    end
    for _, c in ipairs(list) do
      local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, told, score = describe(c)
      if not kind or kind == 'x' then
        local there = told == token or offer(c)
        if there and window > 0 then
          -- As with Simba's own release, it queues again if it fails.
          forget(c)
          turn, till, changed = c, now + window, true
          return true
        elseif not there and kind and lapses <= now then
          forget(c)
        else
          if told ~= token and (there or not kind) then
            remember(c, 'x', 0, 0, '', '', '', now, now + grace, there and token or -1, score or call('ZSCORE', queue, c))
            call('PEXPIRE', waiting, KEEP)
            call('PEXPIRE', queue, KEEP)
          end
          from = from + 1
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
      elseif told ~= token and (c == asks or listens(lock .. ':' .. c)) then
        if c ~= asks then call('PUBLISH', lock .. ':' .. c, 'released@@' .. last) end
        if window > 0 then turn, till, changed = c, now + window, true end
        remember(c, kind, wttl, wtransition, wserver, wticket, wsession, since, math.max(lapses, now + window), token, score)
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
  local had, httl, htransition, hserver, hticket, hsession, since, _, _, order = describe(c)
  if had == 'x' then had, since = nil, nil end
  local score = call('ZSCORE', queue, c)
  if not score then
    score = had and order or original
    if not score or score == '' then
      local at = micros / 1000000
      local top = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
      if top[2] then at = math.max(at, tonumber(top[2]) + 0.000001) end
      score = string.format('%.6f', at)
    end
    call('ZADD', queue, score, c)
  end
  -- A poll does not change what a blocked connection asked for, if that still lives.
  if kind == 'p' and had == 'b' and since and
      (hserver == server or call('PUBLISH', 'simba-server:' .. hserver, '') > 0) then
    return score
  end
  if had == 'b' and kind == 'b' then dismiss(c, hserver, hticket) end
  if kind == 'p' then
    poll(c, t, tr, since or now, score)
  else
    remember(c, kind, t, tr, server, ticket, s, since or now, 0, -1, score)
  end
  call('PEXPIRE', queue, KEEP)
  call('PEXPIRE', waiting, KEEP)
  if not since then event('queued', c, '0', '') end
  return score
end

-- reply writes the record and says how the mutex stands.
local function reply(status, position, extra, due)
  if changed then save() end
  if freed and owner == '' and turn == '' then call('PUBLISH', lock, 'released@@' .. last) end
  if owner ~= '' then
    return { status, owner, token, acquired, acquired + ttl, ends, now, position, extra, due or ends, grants, events }
  end
  local kept = turn ~= '' and till or 0
  return { status, '', '0', 0, 0, kept, now, position, extra, due or kept, grants, events }
end

