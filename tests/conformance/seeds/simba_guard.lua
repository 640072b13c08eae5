-- mutex_guard.lua of Simba on the JVM, as its documentation prints it, without the definitions
-- of the variables and of getCurrentOwner. That function returns the state like mutex_acquire.lua.
local mutexKey = KEYS[1]
local contenderId = ARGV[1]
local transition = ARGV[2]

local function getCurrentOwner(mutexKey)
    local ownerId = redis.call('get', mutexKey)
    if not ownerId then
        return '@@'
    end
    return ownerId .. '@@' .. redis.call('pttl', mutexKey)
end

-- Verify ownership before renewal
if redis.call('get', mutexKey) ~= contenderId then
    return getCurrentOwner(mutexKey)  -- not owner, return current state
end
-- Extend TTL with XX (only if key exists)
if redis.call('set', mutexKey, contenderId, 'xx', 'px', transition) then
    return contenderId .. '@@' .. transition
end
return getCurrentOwner(mutexKey)
