-- prove has a node that takes no writes refuse the script. The range is empty, so the command
-- removes nothing. Redis refuses a write before it looks at the key, so a key of another type
-- proves as much. The command needs no memory; neither replicas nor the append only file see it.
local function prove(key)
  local done = redis.pcall('ZREMRANGEBYRANK', key, 1, 0)
  if type(done) == 'table' and not string.find(done.err, 'WRONGTYPE ', 1, true) then
    redis.call('ZREMRANGEBYRANK', key, 1, 0) -- raises that error
  end
end

