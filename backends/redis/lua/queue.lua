-- queue: lists the queue.
-- ARGV  7 how many
-- The extra of the reply is a flat list: contender, kind, since when.
local list, wanted, from = {}, 3 * tonumber(ARGV[7]), 0
if owner == '' then handOff() end
while #list < wanted do
  local page = call('ZRANGE', queue, from, from + 63)
  if #page == 0 then break end
  for _, c in ipairs(page) do
    local kind, _, _, _, _, _, since, lapses = readWaiter(c)
    if #list == wanted then break end
    if kind == 'p' and lapses <= now then
      leave(c, 'lapsed')
    else
      local n = #list
      if not kind or kind == 'x' then since = math.floor(tonumber(call('ZSCORE', queue, c)) * 1000) end
      list[n + 1], list[n + 2], list[n + 3] = c, kind == 'b' and 'b' or 'p', since
      from = from + 1
    end
  end
end
return finish('ok', 0, list)
