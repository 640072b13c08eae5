-- release: ends the contender's tenure, and removes it from the queue.
-- ARGV  7 contender  8 token or '0'  9 session or ''  10 reason
local me, wanted, bound = ARGV[7], ARGV[8], ARGV[9]
local status = 'lost'
if owner == me and (wanted == '0' or wanted == token) and (bound == '' or bound == session) then
  status = 'released'
  endTenure('released', ARGV[10])
end
-- A release with a token or a session may be late, so it does not change the queue.
if wanted == '0' and bound == '' and call('ZREM', queue, me) == 1 then
  local kind, _, _, wserver, wticket = readWaiter(me)
  if kind == 'b' then notifyEntryGone(me, wserver, wticket) end
  leave(me, 'left')
  if reserved == me then endReservation() end
end
handOff()
return finish(status, 0, '')
