-- Looks after a mutex, and says how it stands. What it returns as extra is how many wait.
-- ARGV  5 '1' = also sweep away the polling waiters whose time is over
--       6 a contender that can be told from now on, or ''
--       7… of waiters here that must have a place: contender, score, ttl, transition, session, ticket
local sweep, again = ARGV[5] == '1', ARGV[6]
if owner ~= '' then
  local ms = remains()
  if math.abs(now + ms - ends) > SLACK then follow(ms) end
end
local unconfirmed = takeBack()

for i = 7, #ARGV, 6 do
  local c = ARGV[i]
  if c == owner then
    local n = #grants
    grants[n + 1], grants[n + 2], grants[n + 3] = c, token, ARGV[i + 5]
  elseif served == server .. '/' .. ARGV[i + 5] then
    -- It had its tenure, and that has ended: it waits no more.
    local n = #grants
    grants[n + 1], grants[n + 2], grants[n + 3] = c, '0', ARGV[i + 5]
  else
    local kind, _, _, wserver = describe(c)
    local place = kind and call('ZSCORE', queue, c)
    -- Another server's waiter for the same contender has taken the place over, if it lives.
    if not place or kind ~= 'b' or
        (wserver ~= server and call('PUBLISH', 'simba-server:' .. wserver, '') == 0) then
      enqueue(c, 'b', tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4], ARGV[i + 5], ARGV[i + 1])
    end
  end
end

-- What a polling waiter was told may have gone to a subscription that is no more.
if again ~= '' and owner == '' then
  local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses = describe(again)
  if kind == 'p' then
    remember(again, kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, -1)
    if turn == again then turn, till, changed = '', 0, true end
  end
end

local first = 0
if sweep then
  for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
    local kind, _, _, _, _, _, _, lapses = describe(c)
    if kind == 'p' and lapses <= now then
      leave(c, 'lapsed')
      if turn == c then turn, till, changed = '', 0, true end
    elseif kind == 'p' and (first == 0 or lapses < first) then
      first = lapses
    end
  end
end
handOn()

local due = owner ~= '' and ends or turn ~= '' and till or 0
if unconfirmed then due = math.min(due, now + LATE / 2) end
if first > 0 and (due == 0 or first < due) then due = first end
return reply('seen', 0, call('ZCARD', queue), due)
