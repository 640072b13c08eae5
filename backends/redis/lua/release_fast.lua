-- By the owner, in its lease, and nobody waits: vacate, as in steps.lua.
if owner == ARGV[5] and holder == owner and now < ends and (ARGV[6] == '0' or ARGV[6] == token) and
    (ARGV[7] == '' or ARGV[7] == session) and call('EXISTS', queue) == 0 then
  call('DEL', lock)
  call('SET', tenure, cmsgpack.pack(token, '', owner), 'PX', KEEP)
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '{"at":' .. string.sub(microsText, 1, -4) ..
    ',"event":"released","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) .. ',"owner":' .. cjson.encode(owner) ..
    ',"token":' .. token .. ',"reason":' .. cjson.encode(ARGV[8]) .. ',"via":"' .. server .. '"}')
  return { 'released', token, now }
end

