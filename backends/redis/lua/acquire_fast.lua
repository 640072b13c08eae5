-- The fast path of acquire: the mutex is free and nobody waits. It has the same effect as grant in
-- steps.lua. If the fence holds no token, or the user may not publish, steps.lua refuses the
-- request.
local before, may = tonumber(state[3] or 0), redis.acl_check_cmd
if idle and not closed and owner == '' and reserved == '' and not unnotified and before and before < 9007199254740991 and not string.find(state[3] or '', '%D') and
    (not may or may('PUBLISH', lock, '') and may('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '')) then
  local me, t, tr = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
  local till = now + t + tr .. ''
  -- This SET fails if the memory is full, or if Redis is older than 6.2 and has no PXAT. Then
  -- acquire.lua handles the request.
  if not redis.pcall('SET', lock, me, 'PXAT', till).err then
    local microsText = time[1] .. string.sub('00000' .. time[2], -6)
    before = math.max(before, tonumber(token))
    token = before < micros and microsText or string.format('%.0f', before + 1)
    call('SET', tokenKey, token, 'PXAT', till)
    if ARGV[6] == '0' then
      call('SET', fence, token)
    else
      call('SET', fence, token, 'PX', t + tr + ARGV[6])
    end
    local record
    if lastGrant ~= '' then
      record = cmsgpack.pack(token, me, last, now, t, tr, ARGV[11], '', '', 0, lastGrant, 0)
    elseif ARGV[11] ~= '' then
      record = cmsgpack.pack(token, me, last, now, t, tr, ARGV[11])
    else
      record = cmsgpack.pack(token, me, last, now, t, tr)
    end
    call('SET', tenure, record, 'PX', KEEP)
    call('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '{"at":' .. string.sub(microsText, 1, -4) ..
      ',"event":"acquired","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) .. ',"owner":' .. cjson.encode(me) ..
      ',"token":' .. token .. ',"reason":"","via":"' .. server .. '"}')
    call('PUBLISH', lock, 'acquired@@' .. me)
    return { 'acquired', me, token, now, now + t, now + t + tr, now, '' }
  end
end

