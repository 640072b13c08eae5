-- How a contender of Simba 3.2 takes a mutex. 3.2 has no queue and no token.
-- KEYS  1 lease
-- ARGV  1 contender   2 ms until the end of its transition window
-- The script returns {owner, ms left, token}. The token of 3.2 is always 0.
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
    redis.call('publish', KEYS[1], 'acquired@@' .. ARGV[1])
    return { ARGV[1], tonumber(ARGV[2]), 0 }
end
return { redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]), 0 }
