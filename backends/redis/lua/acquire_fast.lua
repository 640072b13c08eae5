-- Free, and nobody waits: grant, as in steps.lua.
if not holder and owner == '' and turn == '' and call('EXISTS', queue) == 0 then
  audible()
  local me, t, tr = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
  token = tonumber(token) < micros and microsText or string.format('%.0f', token + 1)
  hold(me, now + t + tr)
  local record
  if served ~= '' then
    record = cmsgpack.pack(token, me, last, now, t, tr, ARGV[10], '', '', 0, served, 0)
  elseif ARGV[10] ~= '' then
    record = cmsgpack.pack(token, me, last, now, t, tr, ARGV[10])
  else
    record = cmsgpack.pack(token, me, last, now, t, tr)
  end
  call('SET', tenure, record, 'PX', KEEP)
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '{"at":' .. string.sub(microsText, 1, -4) ..
    ',"event":"acquired","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) .. ',"owner":' .. cjson.encode(me) ..
    ',"token":' .. token .. ',"reason":"","via":"' .. server .. '"}')
  call('PUBLISH', lock, 'acquired@@' .. me)
  return { 'acquired', token, now }
end

