-- mutex_acquire.lua of Simba on the JVM, as its documentation prints it, without the
-- definitions of the variables. The documentation says that the score is Redis' time in seconds, from
-- the TIME command.
local mutexKey = KEYS[1]
local contenderQueueKey = mutexKey .. ':contender'
local contenderId = ARGV[1]
local transition = ARGV[2]
local nowTime = redis.call('time')[1]

-- 1. Try SET NX (atomic acquire)
local succeed = redis.call('set', mutexKey, contenderId, 'nx', 'px', transition)
if succeed then
    -- Publish acquisition event to all listeners
    redis.call('publish', mutexKey, 'acquired@@' .. contenderId)
    return contenderId .. '@@' .. transition
end

-- 2. Failed — add self to wait queue (sorted set, scored by time)
redis.call('zadd', contenderQueueKey, 'nx', nowTime, contenderId)
-- 3. Return current owner and its remaining TTL
local ownerId = redis.call('get', mutexKey)
local ttl = redis.call('pttl', mutexKey)
return ownerId .. '@@' .. ttl
