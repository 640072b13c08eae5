-- ARGV  5 contender  6 ttl  7 transition  8 token or '0'
if owner == '' then handOn() end
if owner == ARGV[5] and (ARGV[8] == '0' or ARGV[8] == token) then
  renew(tonumber(ARGV[6]), tonumber(ARGV[7]), session)
  return reply('renewed', 0, '')
end
local rank = call('ZRANK', queue, ARGV[5])
return reply('lost', rank and rank + 1 or 0, '')
