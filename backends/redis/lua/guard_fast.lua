-- By the owner, in its lease: renew, as in steps.lua.
if owner == ARGV[5] and holder == owner and now < ends and (ARGV[8] == '0' or ARGV[8] == token) then
  local t, tr = tonumber(ARGV[6]), tonumber(ARGV[7])
  call('SET', lock, owner, 'PX', t + tr .. '')
  call('SET', tenure, cmsgpack.pack(token, owner, last, now, t, tr, session), 'PX', KEEP)
  return { 'renewed', token, now }
end

