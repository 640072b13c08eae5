-- The fast path of reconcile: the request only reads the mutex, and there is nothing to repair.
asker = '' -- ARGV names no contender
if #ARGV == 9 and ARGV[7] == '0' and ARGV[8] == '' and ARGV[9] == '0' and reserved == '' and not string.find(granted, '/%d+$') then
  -- If the queue has another type, ZCARD fails, and the steps refuse the key.
  local waiters, ms = redis.pcall('ZCARD', queue), lockOwner and call('PTTL', lock) or 0
  local off = now + ms - ends -- see compareEnds
  local held = lockOwner and lockOwner == owner and lockToken == token and now < ends and off >= -20 and off <= 20
  local free = idle and owner == ''
  if type(waiters) == 'number' and (held or free) then
    -- Here the write check is the last command. Before Redis 7, a command after a write begins a
    -- transaction in the append only file, even if that write changed nothing.
    redis.set_repl(redis.REPL_NONE)
    requireWritable(queue)
    return { 'ok', owner, lockOwner and token or '0', acquired, acquired + ttl, ends, now, 0, { waiters, held and session or '' }, ends, {}, {} }
  end
end

