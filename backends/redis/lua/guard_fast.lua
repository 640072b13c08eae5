-- The fast path of guard: the owner renews within its lease, and nobody waits. It has the same
-- effect as renew in steps.lua.
if owner == ARGV[7] and lockOwner == owner and lockToken == token and now < ends and (ARGV[10] == '0' or ARGV[10] == token) and
    call('EXISTS', queue) == 0 then
  local t, tr = tonumber(ARGV[8]), tonumber(ARGV[9])
  local till = now + t + tr .. ''
  call('PEXPIREAT', lock, till) -- first, see extendLock
  call('PEXPIREAT', tokenKey, till)
  if ARGV[6] ~= '0' then call('PEXPIRE', fence, t + tr + ARGV[6]) end
  local record
  if lastGrant ~= '' or nextLapse ~= 0 then
    record = cmsgpack.pack(token, owner, last, now, t, tr, session, '', '', 0, lastGrant, nextLapse)
  elseif session ~= '' then
    record = cmsgpack.pack(token, owner, last, now, t, tr, session)
  else
    record = cmsgpack.pack(token, owner, last, now, t, tr)
  end
  call('SET', tenure, record, 'PX', KEEP)
  return { 'renewed', owner, token, now, now + t, now + t + tr, now, '' }
end

