-- How a contender of Simba 4.0 and later releases a mutex. It is the script of 3.3, but
-- keeps the queue.
-- KEYS  1 lease   2 token of the current tenure
-- ARGV  1 contender
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[1], KEYS[2])
redis.call('publish', KEYS[1], 'released@@' .. ARGV[1])
return 1
