-- Notes that a ticket of this server knows of its grant, before its client is told.
-- ARGV  5 contender  6 token  7 ticket
local status = 'seen'
if owner == ARGV[5] and ARGV[6] == token then
  status = 'confirmed'
  if untold == server .. '/' .. ARGV[7] then untold, changed = untold .. '!', true end
end
local rank = call('ZRANK', queue, ARGV[5])
return reply(status, rank and rank + 1 or 0, '')
