-- mutex_release.lua of Simba on the JVM, as its documentation prints it, without the
-- definitions of the variables, and without the reply to the owner.
local mutexKey = KEYS[1]
local contenderQueueKey = mutexKey .. ':contender'
local contenderId = ARGV[1]

-- 1. Verify ownership
if redis.call('get', mutexKey) ~= contenderId then
    redis.call('zrem', contenderQueueKey, contenderId)
    return 0
end
-- 2. Delete the lock
redis.call('del', mutexKey)
-- 3. Dequeue the next contender and notify via Pub/Sub
local contenderQueue = redis.call('zrevrange', contenderQueueKey, -1, -1)
if #contenderQueue > 0 then
    local nextContender = contenderQueue[1]
    redis.call('zrem', contenderQueueKey, nextContender)
    local channel = mutexKey .. ':' .. nextContender
    redis.call('publish', channel, 'released@@' .. contenderId)
end
return 1
