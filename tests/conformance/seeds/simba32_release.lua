-- How a contender of Simba 3.2 releases a mutex. The script notifies all subscribers of
-- the mutex's channel. It also deletes the queue of older generations.
-- KEYS  1 lease   2 queue
-- ARGV  1 contender
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    redis.call('zrem', KEYS[2], ARGV[1])
    return 0
end
redis.call('del', KEYS[1], KEYS[2])
redis.call('publish', KEYS[1], 'released@@' .. ARGV[1])
return 1
