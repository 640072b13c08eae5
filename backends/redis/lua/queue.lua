-- Lists the queue: contender, kind, since when, flat.
-- ARGV  5 how many
local due = 0
local list = {}
if owner == '' then handOn() end
for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
  local kind, _, _, _, _, _, since, lapses = describe(c)
  if kind == 'p' and lapses <= now then
    leave(c, 'lapsed')
  elseif #list < tonumber(ARGV[5]) * 3 then
    local n = #list
    if not kind then since = math.floor(tonumber(call('ZSCORE', queue, c)) * 1000) end
    list[n + 1], list[n + 2], list[n + 3] = c, kind or 'p', since
  end
end
return reply('seen', 0, list)
