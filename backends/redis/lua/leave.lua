-- Ends the wait of a ticket of this server.
-- ARGV  5 contender  6 ticket  7 'timeout', 'left' or 'gone'
local me, ticket, why = ARGV[5], ARGV[6], ARGV[7]
local status = 'timeout'
if owner == me then
  if why ~= 'gone' then
    status, untold = 'acquired', ''
    changed = true
  elseif heldBy(ticket) then
    vacate('released', 'waiter gone')
  end
else
  local kind, wttl, wtransition, wserver, wticket, wsession, since = describe(me)
  if kind == 'b' and wserver == server and wticket == ticket then
    if why ~= 'gone' then
      leave(me, why)
    elseif call('ZSCORE', queue, me) then
      status = 'queued'
      remember(me, 'p', wttl, wtransition, server, '', '', since, lapse(), -1)
    end
  end
end
handOn()
local rank = call('ZRANK', queue, me)
return reply(status, rank and rank + 1 or 0, '')
