-- By the owner, in its lease: renew, as in steps.lua.
if owner == ARGV[6] and holder == owner and now < ends and (ARGV[9] == '0' or ARGV[9] == token) then
  local t, tr = tonumber(ARGV[7]), tonumber(ARGV[8])
  extend(owner, now + t + tr)
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

