-- ARGV  6 contender  7 token or '0'  8 session or ''  9 reason
local me, wanted, bound = ARGV[6], ARGV[7], ARGV[8]
local status = 'lost'
if owner == me and (wanted == '0' or wanted == token) and (bound == '' or bound == session) then
  status = 'released'
  vacate('released', ARGV[9])
end
-- A request for one tenure or one session may be late: it leaves the queue alone.
if wanted == '0' and bound == '' and call('ZREM', queue, me) == 1 then
  local kind, _, _, wserver, wticket = describe(me)
  if kind == 'b' then dismiss(me, wserver, wticket) end
  leave(me, 'left')
  if turn == me then turn, till, changed = '', 0, true end
end
handOn()
return reply(status, 0, '')
