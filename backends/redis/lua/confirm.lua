-- Notes that a ticket of this server knows of its grant, before its client is told.
-- ARGV  5 contender  6 token  7 ticket
local status = 'seen'
if owner == ARGV[5] and ARGV[6] == token then
  status = 'confirmed'
  -- Whichever ticket of the contender was granted it: this one tells its client, so
  -- nobody may take the tenure back any more.
  if untold ~= '' and string.sub(untold, -1) ~= '!' then
    untold, changed = server .. '/' .. ARGV[7] .. '!', true
  end
end
local rank = call('ZRANK', queue, ARGV[5])
return reply(status, rank and rank + 1 or 0, '')
