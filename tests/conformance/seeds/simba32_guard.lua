-- How a contender of Simba 3.2 renews its lease.
-- KEYS  1 lease
-- ARGV  1 contender   2 ms until the end of its transition window
-- The script returns {owner, ms left, token}, or {'', 0, 0} if the mutex is free.
local owner = redis.call('get', KEYS[1])
if not owner then
    return { '', 0, 0 }
end
if owner ~= ARGV[1] then
    return { owner, redis.call('pttl', KEYS[1]), 0 }
end
redis.call('set', KEYS[1], ARGV[1], 'xx', 'px', ARGV[2])
return { ARGV[1], tonumber(ARGV[2]), 0 }
