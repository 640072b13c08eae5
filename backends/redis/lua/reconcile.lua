-- reconcile: applies the changes that happened to the mutex without a request, and returns its
-- state.
-- ARGV  7 '1' = also remove the polling waiters that have lapsed
--       8 a polling contender whose channel has a new subscription, or ''
--       9 how many release notices to single contenders follow: those since the last
--         reconciliation, by Simba or by our own scripts
--       … of each notice: the contender that was notified, the releaser
--       … of each waiter here that must have a queue entry: contender, score, ttl, transition,
--         session, ticket
-- The extra of the reply is a list: the length of the queue, the session of the lease.
local sweep, renotify, notices = ARGV[7] == '1', ARGV[8], tonumber(ARGV[9])
if owner ~= '' then compareEnds() end
local unconfirmed, status = revokeUnconfirmed(), 'ok'

-- restoreWaiter restores the queue entry of a waiter of this server. If the waiter has had a
-- tenure, the reply reports that the wait has ended.
local function restoreWaiter(c, score, t, tr, s, wticket)
  local ticket, n = server .. '/' .. wticket, #grants
  local latest = string.match(lastGrant, '^[^ ]*') == ticket
  local byCommand = latest and string.sub(lastGrant, -1) == '!' or not latest and call('HEXISTS', endedTickets, ticket) == 1
  if c == owner then
    grants[n + 1], grants[n + 2], grants[n + 3] = c, token, wticket
    return
  end
  if latest or byCommand then -- the waiter had a tenure, which has ended
    grants[n + 1], grants[n + 2], grants[n + 3] = c, byCommand and 'ended' or 'expired', wticket
    return
  end
  local kind, _, _, wserver = readWaiter(c)
  local entry = kind and call('ZSCORE', queue, c)
  -- The contender's entry may belong to its waiter at another server. If that server lives, its
  -- waiter keeps the entry.
  if entry and kind == 'b' and
      (wserver == server or call('PUBLISH', 'simba-server:' .. wserver, '') > 0) then
    return
  end
  if full and not entry then
    status = 'full' -- the server will try again
  else
    enqueue(c, 'b', t, tr, s, wticket, score)
  end
end
for i = 10 + 2 * notices, #ARGV, 6 do
  restoreWaiter(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4], ARGV[i + 5])
end

-- Renewals do not write the queue, so reconciling extends its expiry, at most once a day. A queue
-- without expiry was made by another program.
local queueRemaining = call('PTTL', queue)
if queueRemaining >= 0 and queueRemaining < KEEP - DAY then extendQueue() end

-- An earlier notice to the polling contender may have gone to a subscription that has ended. The
-- record and the reservation are reset, so that handOff notifies the contender again.
if renotify ~= '' and owner == '' then
  local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, _, score = readWaiter(renotify)
  if kind == 'p' then
    writeWaiter(renotify, kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, -1, score)
    if reserved == renotify then endReservation() end
  end
end

if sweep and nextLapse ~= 0 and nextLapse <= now then
  nextLapse, changed = 0, true
  for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
    local kind, _, _, _, _, _, _, lapses = readWaiter(c)
    if kind == 'p' and lapses <= now then
      leave(c, 'lapsed')
      if reserved == c then endReservation() end
    elseif kind == 'p' and (nextLapse == 0 or lapses < nextLapse) then
      nextLapse = lapses
    end
  end
end

-- A release by Simba up to 3.1 removes the first contender from the queue and publishes a notice to
-- it. removed collects such contenders, unless they have had a tenure since or have queued again.
--
-- The notices of our own scripts have the same form. Two facts tell them apart: our scripts record
-- the end of a tenure before they publish such a notice, and only contenders of Simba subscribe to
-- channels without braces.
local removed = {}
local function handleNotice(i)
  local c, releaser, hadTenure, releasedLater = ARGV[i], ARGV[i + 1], false, false
  for k = i + 2, 8 + 2 * notices, 2 do
    releasedLater, hadTenure = releasedLater or ARGV[k] == releaser, hadTenure or ARGV[k + 1] == c
  end
  -- recorded: an earlier script of ours recorded this release. It did not know that the release
  -- removed c from the queue.
  local recorded = unnotified and releaser == last
  if recorded then unseen, foreignRelease, unnotified, changed = true, true, false, true end
  -- If the releaser has the reservation, it has had a tenure that our scripts did not see. There
  -- are two exceptions: the releaser is a waiter of ours, which has a record; or it got a later
  -- notice, so its reservation is newer than the release.
  if reserved == releaser and not releasedLater and c ~= releaser and not readWaiter(releaser) then
    unseen, foreignRelease = true, true
    endReservation()
    restoreEntries()
  end
  if readWaiter(c) and not call('ZSCORE', queue, c) then restoreEntries() end
  local hasNoEntry = recorded or not call('ZSCORE', queue, c)
  if (unseen or plain and hasSubscriber(plainContenderChannel(c))) and not hadTenure and not readWaiter(c) and hasNoEntry then
    removed[#removed + 1] = c
  end
end
for i = 10, 8 + 2 * notices, 2 do handleNotice(i) end

for _, c in ipairs(removed) do
  if foreignRelease and owner == '' and reserved == '' and notifyFree(c, true) and window > 0 then
    dequeue(c)
    reserved, reservedUntil, changed = c, now + window, true
  end
end
-- A release by Simba up to 3.1 notifies only the removed contender. Contenders of 3.2 and later
-- subscribe only to the mutex's channel, so the script announces the free mutex there.
if foreignRelease and notices > 0 then announceFree = true end
handOff()
-- If others got the mutex, the removed contenders go back to the front of the queue. A contender
-- that missed Simba's notice would not queue again by itself. A contender that received the notice
-- has queued again, but at the end.
for i = #removed, 1, -1 do
  local c = removed[i]
  if (owner ~= '' or reserved ~= '') and owner ~= c and reserved ~= c and mayReceive(c) then
    local first = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    call('ZADD', queue, first[2] and first[2] - 0.000001 or time[1], c)
  end
end

local due = owner ~= '' and ends or reserved ~= '' and reservedUntil or 0
if unconfirmed then due = math.min(due, now + LATE / 2) end
if sweep and nextLapse ~= 0 and (due == 0 or nextLapse < due) then due = nextLapse end
return finish(status, 0, { call('ZCARD', queue), session }, due)
