-- acquire: grants the mutex to the contender, renews its lease, or queues it.
-- ARGV  7 contender  8 ttl  9 transition  10 'noqueue', 'queue' or 'wait'  11 session  12 ticket
-- The extra of the reply is the score of the queue entry.
local me, mode, newSession = ARGV[7], ARGV[10], ARGV[11]
local t, tr = tonumber(ARGV[8]), tonumber(ARGV[9])
local hasWaiters = true
if owner ~= me then revokeUnconfirmed() end
if owner == '' then hasWaiters = handOff(me) end

if owner == me then
  renew(t, tr, newSession)
  return finish('renewed', 0, '')
end
if closed then return finish('closed', 0, '') end
-- A full Redis accepts no new contender. A contender with a queue entry or a reservation is not
-- new.
local refused = full and reserved ~= me and not call('ZSCORE', queue, me)
if owner == '' and (reserved == '' or reserved == me) then
  if refused then return finish('full', 0, '') end
  if hasWaiters then dequeue(me) end
  grant(me, t, tr, newSession, '', '')
  return finish('acquired', 0, '')
end
if owner ~= '' then compareEnds() end
if mode == 'noqueue' then
  local rank = call('ZRANK', queue, me)
  return finish('busy', rank and rank + 1 or 0, '')
end
if refused then return finish('full', 0, '') end
local score = enqueue(me, mode == 'wait' and 'b' or 'p', t, tr, newSession, ARGV[12])
return finish(mode == 'wait' and 'waiting' or 'queued', call('ZRANK', queue, me) + 1, score)
