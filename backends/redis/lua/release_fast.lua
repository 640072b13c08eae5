-- The fast path of release: the owner releases within its lease, its server has received the grant,
-- nobody waits, and notices go to channels with braces only. It has the same effect as endTenure in
-- steps.lua.
local may = redis.acl_check_cmd
if owner == ARGV[7] and lockOwner == owner and lockToken == token and now < ends and (ARGV[8] == '0' or ARGV[8] == token) and
    (ARGV[9] == '' or ARGV[9] == session) and (granted == '' or string.sub(granted, -1) == '!') and
    call('EXISTS', queue, waiting) == 0 and not string.find(ARGV[4], 'plain', 1, true) and
    (not may or may('PUBLISH', lock, '') and may('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '')) then
  call('DEL', lock, tokenKey)
  local record
  local microsText = time[1] .. string.sub('00000' .. time[2], -6)
  if lastGrant ~= '' then
    if string.sub(lastGrant, -1 - #token) == ' ' .. token then lastGrant = lastGrant .. '!' end
    record = cmsgpack.pack(token, '', owner, 0, 0, 0, '', '', '', 0, lastGrant, 0)
  else
    record = cmsgpack.pack(token, '', owner)
  end
  call('SET', tenure, record, 'PX', KEEP)
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '{"at":' .. string.sub(microsText, 1, -4) ..
    ',"event":"released","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) .. ',"owner":' .. cjson.encode(owner) ..
    ',"token":' .. token .. ',"reason":' .. cjson.encode(ARGV[10]) .. ',"via":"' .. server .. '"}')
  call('PUBLISH', lock, 'released@@' .. owner)
  return { 'released', owner, token, 0, 0, 0, now, ARGV[10] }
end

