-- Looks after a mutex, and says how it stands. What it returns as extra is how many wait.
-- ARGV  6 '1' = also sweep away the polling waiters whose time is over
--       7 a contender that can be told from now on, or ''
--       8… of waiters here that must have a place: contender, score, ttl, transition, session, ticket
local sweep, again = ARGV[6] == '1', ARGV[7]
if owner ~= '' then compare() end
local unconfirmed, status = takeBack(), 'seen'

for i = 8, #ARGV, 6 do
  local c, ticket = ARGV[i], server .. '/' .. ARGV[i + 5]
  local latest = string.match(served, '^[^ ]*') == ticket
  local commanded = latest and string.sub(served, -1) == '!' or not latest and call('EXISTS', ended .. ticket) == 1
  if c == owner then
    local n = #grants
    grants[n + 1], grants[n + 2], grants[n + 3] = c, token, ARGV[i + 5]
  elseif latest or commanded then
    -- It had its tenure, and that has ended: it waits no more.
    local n = #grants
    grants[n + 1], grants[n + 2], grants[n + 3] = c, commanded and 'ended' or 'over', ARGV[i + 5]
  else
    local kind, _, _, wserver = describe(c)
    local place = kind and call('ZSCORE', queue, c)
    -- Another server's waiter for the same contender has taken the place over, if it lives.
    if not place or kind ~= 'b' or
        (wserver ~= server and call('PUBLISH', 'simba-server:' .. wserver, '') == 0) then
      if full and not place then
        status = 'full' -- tried again later
      else
        enqueue(c, 'b', tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4], ARGV[i + 5], ARGV[i + 1])
      end
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

if sweep and lapse ~= 0 and lapse <= now then
  lapse, changed = 0, true
  for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
    local kind, _, _, _, _, _, _, lapses = describe(c)
    if kind == 'p' and lapses <= now then
      leave(c, 'lapsed')
      if turn == c then turn, till = '', 0 end
    elseif kind == 'p' and (lapse == 0 or lapses < lapse) then
      lapse = lapses
    end
  end
end
handOn()

local due = owner ~= '' and ends or turn ~= '' and till or 0
if unconfirmed then due = math.min(due, now + LATE / 2) end
if sweep and lapse ~= 0 and (due == 0 or lapse < due) then due = lapse end
return reply(status, 0, call('ZCARD', queue), due)
