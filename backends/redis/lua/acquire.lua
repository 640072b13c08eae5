-- ARGV  7 contender  8 ttl  9 transition  10 'busy', 'queue' or 'wait'  11 session  12 ticket
local me, mode, asked = ARGV[7], ARGV[10], ARGV[11]
local t, tr = tonumber(ARGV[8]), tonumber(ARGV[9])
local anyone = true
if owner ~= me then takeBack() end
if owner == '' then anyone = handOn(me) end

if owner == me then
  renew(t, tr, asked)
  return reply('renewed', 0, '')
end
-- A full Redis takes nobody new. Who has a place in the queue, or a turn, keeps it.
local refused = full and turn ~= me and not call('ZSCORE', queue, me)
if owner == '' and (turn == '' or turn == me) then
  if refused then return reply('full', 0, '') end
  if anyone then forget(me) end
  grant(me, t, tr, asked, '', '')
  return reply('acquired', 0, '')
end
if owner ~= '' then compare() end
if mode == 'busy' then
  local rank = call('ZRANK', queue, me)
  return reply('busy', rank and rank + 1 or 0, '')
end
if refused then return reply('full', 0, '') end
local score = enqueue(me, mode == 'wait' and 'b' or 'p', t, tr, asked, ARGV[12])
return reply(mode == 'wait' and 'waiting' or 'queued', call('ZRANK', queue, me) + 1, score)
