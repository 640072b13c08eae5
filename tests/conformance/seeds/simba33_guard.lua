-- How a contender of Simba 3.3 and later renews its lease and the expiry of its token.
-- KEYS  1 lease   2 token of the current tenure
-- ARGV  1 contender   2 ms until the end of its transition window
-- The script returns {owner, ms left, token}, or {'', 0, 0} if the mutex is free.
local owner = redis.call('get', KEYS[1])
if not owner then
    return { '', 0, 0 }
end
local token = tonumber(redis.call('get', KEYS[2]) or 0)
if owner ~= ARGV[1] then
    return { owner, redis.call('pttl', KEYS[1]), token }
end
redis.call('set', KEYS[1], ARGV[1], 'xx', 'px', ARGV[2])
redis.call('pexpire', KEYS[2], ARGV[2])
return { ARGV[1], tonumber(ARGV[2]), token }
