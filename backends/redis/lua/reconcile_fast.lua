asker = '' -- the arguments name none
-- Only to see how it stands, and there is nothing to settle: as in steps.lua.
if #ARGV == 9 and ARGV[7] == '0' and ARGV[8] == '' and ARGV[9] == '0' and turn == '' and not string.find(untold, '/%d+$') then
  -- A queue of another type is for steps.lua to refuse.
  local waiters, ms = redis.pcall('ZCARD', queue), holder and call('PTTL', lock) or 0
  local off = now + ms - ends -- see compare
  local held = holder and holder == owner and shown == token and now < ends and off >= -20 and off <= 20
  local free = nobody and owner == ''
  if type(waiters) == 'number' and (held or free) then
    -- The proof of steps.lua, here the last command: before Redis 7, a command after a write begins a
    -- transaction for the append only file, even if that write changed nothing.
    redis.set_repl(redis.REPL_NONE)
    prove(queue)
    return { 'seen', owner, holder and token or '0', acquired, acquired + ttl, ends, now, 0, waiters, ends, {}, {} }
  end
end

