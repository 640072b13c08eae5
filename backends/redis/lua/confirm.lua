-- Notes that this server knows of a grant to one of its tickets.
-- ARGV  6 contender  7 token  8 ticket
--       9 'told' = the ticket tells its client now; 'heard' = a message told the server
-- Extra is 1 if the server did not know of it before.
local status, news = 'seen', 0
-- A lease may run out before its server hears of it. A look may then have the same ticket
-- granted a second one, of which its server hears later or not at all.
local later = ARGV[9] == 'told' and served == server .. '/' .. ARGV[8] .. ' ' .. token
if owner == ARGV[6] and (ARGV[7] == token or later) then
  status = 'confirmed'
  if ARGV[9] == 'told' then
    -- Whichever ticket of the contender was granted it.
    tell(ARGV[8])
  elseif untold == server .. '/' .. ARGV[8] then
    untold, changed, news = untold .. '!', true, 1
  end
elseif ARGV[9] == 'told' then
  -- The wait is over all the same: a place of this very ticket must catch no grant any more.
  local kind, wttl, wtransition, wserver, wticket, _, since = describe(ARGV[6])
  if kind == 'b' and wserver == server and wticket == ARGV[8] then poll(ARGV[6], wttl, wtransition, since) end
  call('DEL', ended .. server .. '/' .. ARGV[8])
end
local rank = call('ZRANK', queue, ARGV[6])
return reply(status, rank and rank + 1 or 0, news)
