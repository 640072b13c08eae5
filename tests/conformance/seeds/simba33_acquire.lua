-- How a contender of Simba 3.3 and later takes a mutex. Each new owner gets a larger token.
-- KEYS  1 lease   2 counter of tokens   3 token of the current tenure
-- ARGV  1 contender   2 ms until the end of its transition window
-- The script returns {owner, ms left, token}. The token is 0 if an older Simba acquired the mutex.
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
    local token = redis.call('incr', KEYS[2])
    redis.call('set', KEYS[3], token, 'px', ARGV[2])
    redis.call('publish', KEYS[1], 'acquired@@' .. ARGV[1])
    return { ARGV[1], tonumber(ARGV[2]), token }
end
return { redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]), tonumber(redis.call('get', KEYS[3]) or 0) }
