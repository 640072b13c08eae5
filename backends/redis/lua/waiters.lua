-- The functions that change waiters and the queue. Between them, this file restores queue entries
-- that other programs have removed. The last function makes the reply.

-- readWaiter returns the fields of a waiter's record, nothing if there is none:
--   kind: 'b' = blocked, 'p' = polling, 'x' = a contender of Simba
--   t, tr: the windows that it asked for; wserver, wticket: the server and ticket of its wait
--     Of kind 'x', t is the end of the lease that it saw last.
--   wsession: the session that it asked for; since: since when it waits
--   lapses: when a polling waiter loses its queue entry
--   notified: the token of the tenure after which it was last notified
--   score: its order in the queue
-- Of kind 'x' only t, lapses, notified and score count.
local function readWaiter(c)
  local w = call('HGET', waiting, c)
  if not w then return end
  local read, kind, t, tr, wserver, wticket, wsession, since, lapses, notified, score = pcall(cmsgpack.unpack, w)
  if not read or kind ~= 'b' and kind ~= 'p' and kind ~= 'x' or type(since) ~= 'number' or type(lapses) ~= 'number' or
      not tonumber(score) then
    refuseKey(waiting, 'has a field that holds no record of simba-resp')
  end
  return kind, t, tr, wserver, wticket, wsession, since, lapses, notified, score
end

-- extendQueue lets the queue and its records live for KEEP from now. Both must expire together: a
-- waiter needs its entry and its record.
local function extendQueue()
  call('PEXPIRE', queue, KEEP)
  call('PEXPIRE', waiting, KEEP)
end

local function writeWaiter(c, ...) call('HSET', waiting, c, cmsgpack.pack(...)) end

-- restoreEntries gives waiters their queue entries back. Other programs remove entries: a release
-- of Simba 3.2 or 3.3 deletes the queue, and a release of earlier versions removes the first entry.
-- Such a release ended a tenure after the current reservation began, so the reservation ends too.
local function restoreEntries()
  local lost = false
  for _, c in ipairs(call('HKEYS', waiting)) do
    if not call('ZSCORE', queue, c) then
      local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, _, score = readWaiter(c)
      if kind == 'x' then
        call('HDEL', waiting, c) -- Simba removed its own contender
      else
        writeWaiter(c, kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, -1, score)
        call('ZADD', queue, score, c)
      end
      lost = true
    end
  end
  extendQueue()
  if lost and reserved ~= '' then endReservation() end
end

-- A queue that does not expire was made by another program, so entries of ours may be missing.
if hasRecords and (unseen and not onlyExpired or call('PTTL', queue) < 0) then restoreEntries() end

-- poll makes c a polling waiter, or restarts its grace, which begins at from.
local function poll(c, t, tr, since, score, from)
  local lapses = from + grace
  writeWaiter(c, 'p', t, tr, server, '', '', since, lapses, -1, score)
  if nextLapse == 0 or lapses < nextLapse then nextLapse, changed = lapses, true end
end

-- leave removes c from the queue, with an event.
local function leave(c, reason)
  dequeue(c)
  event('left', c, '0', reason)
end

-- isGrantedTo returns whether the tenure was granted to a ticket of this server, and has not been
-- renewed since.
local function isGrantedTo(ticket)
  ticket = server .. '/' .. ticket
  return granted == ticket or granted == ticket .. '!'
end

-- acknowledge notes that a ticket of this server returns the tenure to its client. If a ticket of
-- another server may do so too, no script may end the tenure as undelivered any more.
local function acknowledge(ticket)
  local mine = server .. '/' .. ticket .. '!'
  if granted == '' or granted == mine then return end
  local byAnother = string.sub(granted, 1, #server + 1) ~= server .. '/'
  if byAnother and string.sub(granted, -1) == '!' then mine = '' end
  granted, changed = mine, true
end

-- revokeUnconfirmed ends a tenure that was granted to a waiter of another server, if that server
-- seems dead. A dead server has no subscription, or does not confirm the grant within LATE: Redis
-- may count a server as a subscriber for some time after it died. No client has the tenure, since a
-- server confirms a grant before its client receives it. revokeUnconfirmed also removes the
-- server's other waiters, since each would cost the same delay. If the server lives after all, it
-- restores their queue entries. revokeUnconfirmed returns true if the confirmation may still come.
local function revokeUnconfirmed()
  local other = string.match(granted, '^(.*)/%d+$')
  if not other or other == server then return end
  if now - acquired <= LATE and call('PUBLISH', 'simba-server:' .. other, '') > 0 then return true end
  endTenure('released', 'server gone')
  for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
    local kind, _, _, wserver = readWaiter(c)
    if kind == 'b' and wserver == other then leave(c, 'server gone') end
  end
end

-- notifyEntryGone notifies another server that its waiter has no queue entry any more.
local function notifyEntryGone(c, wserver, wticket)
  if wserver ~= server then
    call('PUBLISH', 'simba-server:' .. wserver, string.sub(lock, 8, -2) .. ' ' .. c .. ' 0 ' .. wticket)
  end
end

-- mayReceive returns whether a contender of Simba can receive a notice that the mutex is free. In a
-- cluster it always returns true, because the contender may subscribe at another node.
local function mayReceive(c) return cluster or hasSubscriber(lock .. ':' .. c) or plain and hasSubscriber(plainContenderChannel(c)) end

-- offerNotice returns the notice to c that the mutex is free. Simba cannot parse one without an id.
local function offerNotice(c) return 'released@@' .. (last ~= '' and last or c) end

-- notifyFree notifies a contender of Simba that the mutex is free. notified: another program has
-- already sent the notice on the channel with braces. notifyFree returns false if the contender
-- cannot receive the notice.
local function notifyFree(c, notified)
  if not mayReceive(c) then return false end
  if not notified then call('PUBLISH', lock .. ':' .. c, offerNotice(c)) end
  if plain then redis.pcall('PUBLISH', plainContenderChannel(c), offerNotice(c)) end -- users may lack the right
  return true
end

-- grantBlocked grants a free mutex to a blocked waiter. It returns false if the waiter's server
-- does not receive the grant.
local function grantBlocked(c, wttl, wtransition, wserver, wticket, wsession)
  local received = wserver == server
  if received then
    local n = #grants
    grants[n + 1], grants[n + 2], grants[n + 3] = c, nextToken(), wticket
  else
    received = call('PUBLISH', 'simba-server:' .. wserver,
      string.sub(lock, 8, -2) .. ' ' .. c .. ' ' .. nextToken() .. ' ' .. wticket) > 0
  end
  if not received then return false end
  local ticket = wserver .. '/' .. wticket
  if wserver == server then ticket = ticket .. '!' end
  dequeue(c)
  grant(c, wttl, wtransition, wsession, ticket, 'handoff')
  return true
end

-- serversChannel: our servers with waiters or subscribers of the mutex subscribe to it, see
-- serversChannel in subscriber.go. A message, with the id of its server, says that the mutex is
-- reserved for a contender that gets no notice. The other servers then learn when the reservation
-- ends.
local serversChannel = 'simba-servers:' .. string.sub(lock, 7)

-- openToOutsiders leaves the free mutex to outsiders for a moment, every third time that it becomes
-- free. Outsiders are contenders of Simba from 3.2: they have no queue entry, and subscribe to the
-- mutex's channel. Simba from 3.0.2 to 3.1, which queues, and our servers subscribe too. Our servers
-- also subscribe to serversChannel. Contenders of earlier versions are outsiders if Simba 3.2 or 3.3
-- has deleted the queue. list is the beginning of the queue.
local function openToOutsiders(list)
  if sinceOpen < 3 then return false end
  sinceOpen, changed = 0, true
  local counts = call('PUBSUB', 'NUMSUB', lock, serversChannel, plainChannel)
  local outsiders = counts[2] - counts[4] + (plain and counts[6] or 0)
  for _, c in ipairs(list) do
    local kind = readWaiter(c)
    if (not kind or kind == 'x') and
        (hasSubscriber(lock .. ':' .. c) or plain and hasSubscriber(plainContenderChannel(c))) then
      outsiders = outsiders - 1
    end
  end
  if outsiders > 0 then
    reserved, reservedUntil, announceFree = '{}', now + 150, true
  end
  return outsiders > 0
end

-- handOff gives a free mutex to the first waiter that can be reached. It grants the mutex to a
-- blocked waiter. It notifies a polling waiter and reserves the mutex for that waiter. A contender
-- of Simba that receives no notices keeps its turn if it will soon ask by itself. me is the
-- contender of the request, which needs no notice. handOff returns false if the mutex is free and
-- nobody waits. Otherwise it returns true. If no tenure may begin, it does nothing.
local function handOff(me)
  if owner ~= '' or reserved ~= '' or closed then return true end
  local from = 0
  while true do
    local list = call('ZRANGE', queue, from, from + 15)
    if #list == 0 then
      if from == 0 then nextLapse = 0 end
      return from > 0
    end
    if from == 0 and openToOutsiders(list) then return true end
    for _, c in ipairs(list) do
      local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, notified, score = readWaiter(c)
      if not kind or kind == 'x' then
        local there, due = notified == token or notifyFree(c), 0
        if kind and now < wttl + JITTER and wttl <= now + 2000 then due = wttl + JITTER end
        if not there and window > 0 and due ~= 0 then
          reserved, reservedUntil, changed = c, due, true
          -- No notice says that the mutex is free, and this server may crash.
          call('PUBLISH', serversChannel, server)
          return true
        elseif there and window > 0 then
          -- Simba's own release also removes the entry. The contender queues again if it needs to.
          dequeue(c)
          -- In a cluster, it may not receive the notice.
          reserved, reservedUntil, changed = c, math.max(now + window, cluster and due or 0), true
          return true
        elseif not there and kind and lapses <= now then
          dequeue(c)
        else
          if notified ~= token and (there or not kind) then
            writeWaiter(c, 'x', wttl or 0, 0, '', '', '', now, now + grace, there and token or -1, score or call('ZSCORE', queue, c))
            extendQueue()
          end
          from = from + 1
        end
      elseif kind == 'b' then
        if grantBlocked(c, wttl, wtransition, wserver, wticket, wsession) then return true end
        leave(c, 'server gone')
      elseif lapses <= now then
        leave(c, 'lapsed')
      elseif notified ~= token and (c == me or hasSubscriber(lock .. ':' .. c)) then
        if c ~= me then call('PUBLISH', lock .. ':' .. c, offerNotice(c)) end
        if window > 0 then reserved, reservedUntil, changed = c, now + window, true end
        writeWaiter(c, kind, wttl, wtransition, wserver, wticket, wsession, since, math.max(lapses, now + window), token, score)
        if window > 0 then return true end
        from = from + 1
      else
        from = from + 1
      end
    end
  end
end

-- enqueue gives c a queue entry, or keeps its entry, and returns the entry's score. original is the
-- score of an entry that was lost.
local function enqueue(c, kind, t, tr, s, ticket, original)
  local had, httl, htransition, hserver, hticket, hsession, since, _, _, order = readWaiter(c)
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
  -- If the contender is a blocked waiter of a server that lives, a polling request changes nothing.
  if kind == 'p' and had == 'b' and since and
      (hserver == server or call('PUBLISH', 'simba-server:' .. hserver, '') > 0) then
    return score
  end
  if had == 'b' and kind == 'b' then notifyEntryGone(c, hserver, hticket) end
  if kind == 'p' then
    poll(c, t, tr, since or now, score, math.max(now, ends))
  else
    writeWaiter(c, kind, t, tr, server, ticket, s, since or now, 0, -1, score)
  end
  extendQueue()
  if not since then event('queued', c, '0', '') end
  return score
end

-- announce announces a free mutex that is not reserved for a waiter. A release of Simba 3.2 or 3.3
-- deletes the queue, and is announced on the channel with braces only. Contenders of Simba before
-- 3.0.2 then have no queue entry, so the notice goes to their channel too.
local function announce()
  if owner ~= '' or reserved ~= '' and reserved ~= '{}' then return end
  if announceFree then call('PUBLISH', lock, 'released@@' .. last) end
  if plain and (announceFree or foreignRelease) then
    redis.pcall('PUBLISH', plainChannel, 'released@@' .. last) -- users may lack the right
  end
end

-- finish saves the record, announces a free mutex, and returns the script's reply: see parseReply
-- in reply.go. due: when to reconcile the mutex; nil = at the end of the lease or reservation.
local function finish(status, position, extra, due)
  if changed then save() end
  announce()
  if owner ~= '' then
    return { status, owner, token, acquired, acquired + ttl, ends, now, position, extra, due or ends, grants, events }
  end
  local kept = reserved ~= '' and reservedUntil or 0
  return { status, '', '0', 0, 0, kept, now, position, extra, due or kept, grants, events }
end
