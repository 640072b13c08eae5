-- requireWritable fails on a node that takes no writes. Its command removes nothing, since the
-- range is empty. The key may have any type, since Redis refuses a write before it checks the type.
-- The command needs no memory. Neither replicas nor the append only file get it.
local function requireWritable(key)
  local done = redis.pcall('ZREMRANGEBYRANK', key, 1, 0)
  if type(done) == 'table' and not string.find(done.err, 'WRONGTYPE ', 1, true) then
    redis.call('ZREMRANGEBYRANK', key, 1, 0) -- raises the error
  end
end

