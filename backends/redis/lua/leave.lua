-- Ends the wait of a ticket of this server.
-- ARGV  6 contender  7 ticket  8 'timeout', 'left' or 'gone'
local me, ticket, why = ARGV[6], ARGV[7], ARGV[8]
local status = 'timeout'
if owner == me then
  if why ~= 'gone' then
    status = 'acquired'
    tell(ticket)
  elseif heldBy(ticket) then
    vacate('released', 'waiter gone')
  end
else
  local kind, wttl, wtransition, wserver, wticket, _, since = describe(me)
  if kind == 'b' and wserver == server and wticket == ticket then
    if why ~= 'gone' then
      leave(me, why)
    elseif call('ZSCORE', queue, me) then
      status = 'queued'
      poll(me, wttl, wtransition, since)
    end
  end
end
handOn()
local rank = call('ZRANK', queue, me)
return reply(status, rank and rank + 1 or 0, '')
