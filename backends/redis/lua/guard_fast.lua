-- By the owner, in its lease: renew, as in steps.lua.
if owner == ARGV[7] and holder == owner and shown == token and now < ends and (ARGV[10] == '0' or ARGV[10] == token) then
  local t, tr = tonumber(ARGV[8]), tonumber(ARGV[9])
  local till = now + t + tr .. ''
  call('PEXPIREAT', lock, till) -- first, as in extend
  call('PEXPIREAT', mark, till)
  if ARGV[6] ~= '0' then call('PEXPIRE', fence, t + tr + ARGV[6]) end
  local record
  if served ~= '' or lapse ~= 0 then
    record = cmsgpack.pack(token, owner, last, now, t, tr, session, '', '', 0, served, lapse)
  elseif session ~= '' then
    record = cmsgpack.pack(token, owner, last, now, t, tr, session)
  else
    record = cmsgpack.pack(token, owner, last, now, t, tr)
  end
  call('SET', tenure, record, 'PX', KEEP)
  return { 'renewed', token, now }
end

