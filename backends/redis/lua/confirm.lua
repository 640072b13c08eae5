-- Notes that this server knows of a grant to one of its tickets.
-- ARGV  7 contender  8 token  9 ticket
--       10 'told' = the ticket tells its client now; 'heard' = a message told the server
-- Extra is 1 if the server did not know of it before.
local status, news = 'seen', 0
-- A lease may run out before its server hears of it. A look may then have the same ticket
-- granted a second one, of which its server hears later or not at all.
local later = ARGV[10] == 'told' and served == server .. '/' .. ARGV[9] .. ' ' .. token
if owner == ARGV[7] and (ARGV[8] == token or later) then
  status = 'confirmed'
  if ARGV[10] == 'told' then
    -- Whichever ticket of the contender was granted it.
    tell(ARGV[9])
  elseif untold == server .. '/' .. ARGV[9] then
    untold, changed, news = untold .. '!', true, 1
  end
elseif ARGV[10] == 'told' then
  -- The wait is over all the same: a place of this very ticket must catch no grant any more.
  local kind, wttl, wtransition, wserver, wticket, _, since, _, _, score = describe(ARGV[7])
  if kind == 'b' and wserver == server and wticket == ARGV[9] then poll(ARGV[7], wttl, wtransition, since, score) end
  call('HDEL', ended, server .. '/' .. ARGV[9])
end
local rank = call('ZRANK', queue, ARGV[7])
return reply(status, rank and rank + 1 or 0, news)
