-- guard: renews the contender's lease. It first hands off a free mutex.
-- ARGV  7 contender  8 ttl  9 transition
--       10 token; '0' = any; '-' = none, which only returns the position
if owner == '' then handOff() end
if owner == ARGV[7] and (ARGV[10] == '0' or ARGV[10] == token) then
  renew(tonumber(ARGV[8]), tonumber(ARGV[9]), session)
  return finish('renewed', 0, '')
end
local rank = call('ZRANK', queue, ARGV[7])
return finish('lost', rank and rank + 1 or 0, '')
