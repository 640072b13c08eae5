-- leave: ends the wait of a ticket of this server. If the client has disconnected ('gone'), the
-- contender keeps its queue entry and becomes a polling waiter. A tenure that the contender has renewed
-- since the grant stays.
-- ARGV  7 contender  8 ticket, '' = its reservation  9 'timeout', 'left' or 'gone'
local me, ticket, why = ARGV[7], ARGV[8], ARGV[9]
local status = 'timeout'
if ticket == '' then
  if owner == '' and reserved == me then endReservation() end
elseif owner == me then
  if why ~= 'gone' then
    status = 'acquired'
    acknowledge(ticket)
  elseif isGrantedTo(ticket) then
    endTenure('released', 'waiter gone')
  end
else
  local kind, wttl, wtransition, wserver, wticket, _, since, _, _, score = readWaiter(me)
  if kind == 'b' and wserver == server and wticket == ticket then
    if why ~= 'gone' then
      leave(me, why)
    elseif call('ZSCORE', queue, me) then
      status = 'queued'
      poll(me, wttl, wtransition, since, score, now)
    end
  end
end
handOff()
local rank = call('ZRANK', queue, me)
return finish(status, rank and rank + 1 or 0, '')
