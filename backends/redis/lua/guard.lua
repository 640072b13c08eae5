-- ARGV  6 contender  7 ttl  8 transition  9 token or '0'
if owner == '' then handOn() end
if owner == ARGV[6] and (ARGV[9] == '0' or ARGV[9] == token) then
  renew(tonumber(ARGV[7]), tonumber(ARGV[8]), session)
  return reply('renewed', 0, '')
end
local rank = call('ZRANK', queue, ARGV[6])
return reply('lost', rank and rank + 1 or 0, '')
