-- How a contender of Simba 3.3 and later takes a mutex: with a token that is larger than all before.
-- KEYS  1 lease   2 counter of tokens   3 token of the present tenure
-- ARGV  1 contender   2 ms until the end of its transition window
-- It returns {owner, ms left, token}. An owner that takes no token has none: 0.
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
    local token = redis.call('incr', KEYS[2])
    redis.call('set', KEYS[3], token, 'px', ARGV[2])
    redis.call('publish', KEYS[1], 'acquired@@' .. ARGV[1])
    return { ARGV[1], tonumber(ARGV[2]), token }
end
return { redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]), tonumber(redis.call('get', KEYS[3]) or 0) }
