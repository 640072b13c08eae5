-- confirm: notes that this server has received a grant to one of its tickets.
-- ARGV  7 contender  8 token  9 ticket
--       10 'acknowledged' = the ticket returns the grant to its client now; 'received' = the server
--          received it by a message
-- The extra of the reply is 1 if a 'received' grant is new to the server, else 0.
local status, isNew = 'ok', 0
-- A lease may expire before the ticket's server receives the grant. Reconciling may then grant the
-- same ticket a later tenure, and the message of that grant may be late or lost. So an
-- acknowledgment also accepts a later tenure of the same ticket.
local later = ARGV[10] == 'acknowledged' and lastGrant == server .. '/' .. ARGV[9] .. ' ' .. token
if owner == ARGV[7] and (ARGV[8] == token or later) then
  status = 'confirmed'
  if ARGV[10] == 'acknowledged' then
    -- acknowledge also handles a tenure that was granted to another ticket of the contender.
    acknowledge(ARGV[9])
  elseif granted == server .. '/' .. ARGV[9] then
    granted, changed, isNew = granted .. '!', true, 1
  end
elseif ARGV[10] == 'acknowledged' then
  -- The wait has ended without the mutex. So this ticket's queue entry must get no more grants.
  local kind, wttl, wtransition, wserver, wticket, _, since, _, _, score = readWaiter(ARGV[7])
  if kind == 'b' and wserver == server and wticket == ARGV[9] then
    poll(ARGV[7], wttl, wtransition, since, score, math.max(now, ends))
  end
  call('HDEL', endedTickets, server .. '/' .. ARGV[9])
end
local rank = call('ZRANK', queue, ARGV[7])
return finish(status, rank and rank + 1 or 0, isNew)
