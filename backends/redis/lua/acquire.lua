-- ARGV  5 contender  6 ttl  7 transition  8 'busy', 'queue' or 'wait'  9 session  10 ticket
local me, mode, asked = ARGV[5], ARGV[8], ARGV[9]
local t, tr = tonumber(ARGV[6]), tonumber(ARGV[7])
local anyone = true
if owner ~= me then takeBack() end
if owner == '' then anyone = handOn() end

if owner == me then
  renew(t, tr, asked)
  return reply('renewed', 0, '')
elseif owner == '' and (turn == '' or turn == me) then
  if anyone then forget(me) end
  grant(me, t, tr, asked, '', '')
  return reply('acquired', 0, '')
end
if owner ~= '' then
  local ms = remains()
  if math.abs(now + ms - ends) > SLACK then follow(ms) end
end
if mode == 'busy' then
  local rank = call('ZRANK', queue, me)
  return reply('busy', rank and rank + 1 or 0, '')
end
local score = enqueue(me, mode == 'wait' and 'b' or 'p', t, tr, asked, ARGV[10])
return reply(mode == 'wait' and 'waiting' or 'queued', call('ZRANK', queue, me) + 1, score)
