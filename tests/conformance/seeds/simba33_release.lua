-- How a contender of Simba 3.3 releases a mutex. It is the script of 3.2, but also deletes
-- the token.
-- KEYS  1 lease   2 queue   3 token of the current tenure
-- ARGV  1 contender
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    redis.call('zrem', KEYS[2], ARGV[1])
    return 0
end
redis.call('del', KEYS[1], KEYS[2], KEYS[3])
redis.call('publish', KEYS[1], 'released@@' .. ARGV[1])
return 1
