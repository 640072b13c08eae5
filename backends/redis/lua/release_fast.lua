-- By the owner, in its lease, whose server knows of it, and nobody waits: vacate, as in steps.lua.
if owner == ARGV[6] and holder == owner and now < ends and (ARGV[7] == '0' or ARGV[7] == token) and
    (ARGV[8] == '' or ARGV[8] == session) and (untold == '' or string.sub(untold, -1) == '!') and call('EXISTS', queue) == 0 then
  audible()
  call('DEL', lock)
  local record
  if served ~= '' then
    if string.sub(served, -1 - #token) == ' ' .. token then served = served .. '!' end
    record = cmsgpack.pack(token, '', owner, 0, 0, 0, '', '', '', 0, served, 0)
  else
    record = cmsgpack.pack(token, '', owner)
  end
  call('SET', tenure, record, 'PX', KEEP)
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '{"at":' .. string.sub(microsText, 1, -4) ..
    ',"event":"released","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) .. ',"owner":' .. cjson.encode(owner) ..
    ',"token":' .. token .. ',"reason":' .. cjson.encode(ARGV[9]) .. ',"via":"' .. server .. '"}')
  return { 'released', token, now }
end

