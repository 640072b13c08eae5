-- By the owner, in its lease, whose server knows of it, and nobody waits: vacate, as in steps.lua.
local may = redis.acl_check_cmd
if owner == ARGV[7] and holder == owner and shown == token and now < ends and (ARGV[8] == '0' or ARGV[8] == token) and
    (ARGV[9] == '' or ARGV[9] == session) and (untold == '' or string.sub(untold, -1) == '!') and
    call('EXISTS', queue, waiting) == 0 and
    (not may or may('PUBLISH', lock, '') and may('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '')) then
  call('DEL', lock, mark)
  local record
  local microsText = time[1] .. string.sub('00000' .. time[2], -6)
  if served ~= '' then
    if string.sub(served, -1 - #token) == ' ' .. token then served = served .. '!' end
    record = cmsgpack.pack(token, '', owner, 0, 0, 0, '', '', '', 0, served, 0)
  else
    record = cmsgpack.pack(token, '', owner)
  end
  call('SET', tenure, record, 'PX', KEEP)
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '{"at":' .. string.sub(microsText, 1, -4) ..
    ',"event":"released","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) .. ',"owner":' .. cjson.encode(owner) ..
    ',"token":' .. token .. ',"reason":' .. cjson.encode(ARGV[10]) .. ',"via":"' .. server .. '"}')
  call('PUBLISH', lock, 'released@@' .. owner)
  return { 'released', token, now }
end

