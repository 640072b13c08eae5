-- Looks after a mutex, and says how it stands. What it returns as extra is how many wait.
-- ARGV  7 '1' = also sweep away the polling waiters whose time is over
--       8 a contender that can be told from now on, or ''
--       9 how many releases by Simba were heard of since the last look; then of each, whom it
--         told that the mutex is free, and who released
--       … of waiters here that must have a place: contender, score, ttl, transition, session, ticket
local sweep, again, releases = ARGV[7] == '1', ARGV[8], tonumber(ARGV[9])
if owner ~= '' then compare() end
local unconfirmed, status = takeBack(), 'seen'

for i = 10 + 2 * releases, #ARGV, 6 do
  local c, ticket = ARGV[i], server .. '/' .. ARGV[i + 5]
  local latest = string.match(served, '^[^ ]*') == ticket
  local commanded = latest and string.sub(served, -1) == '!' or not latest and call('HEXISTS', ended, ticket) == 1
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
  local kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, _, score = describe(again)
  if kind == 'p' then
    remember(again, kind, wttl, wtransition, wserver, wticket, wsession, since, lapses, -1, score)
    if turn == again then endTurn() end
  end
end

if sweep and lapse ~= 0 and lapse <= now then
  lapse, changed = 0, true
  for _, c in ipairs(call('ZRANGE', queue, 0, -1)) do
    local kind, _, _, _, _, _, _, lapses = describe(c)
    if kind == 'p' and lapses <= now then
      leave(c, 'lapsed')
      if turn == c then endTurn() end
    elseif kind == 'p' and (lapse == 0 or lapses < lapse) then
      lapse = lapses
    end
  end
end
-- A release by Simba up to 3.1 takes the next of the queue out, and tells it. popped are those who
-- have not had a tenure since, and have no place again, or a later one. Our own notices are among the
-- releases: they follow a tenure whose end these scripts noted. Only Simba's contenders listen on deaf
-- channels.
local popped = {}
for i = 10, 8 + 2 * releases, 2 do
  local c, releaser, had, later = ARGV[i], ARGV[i + 1], false, false
  for k = i + 2, 8 + 2 * releases, 2 do
    later, had = later or ARGV[k] == releaser, had or ARGV[k + 1] == c
  end
  -- By this c was taken out of the queue. A request may have noted the release before.
  local out = unheard and releaser == last
  if out then passed, left, unheard, changed = true, true, false, true end
  -- It had a tenure in its turn that nobody saw. A waiter of ours keeps its record in its turn. One
  -- that was told of its turn later has yet to have it: this is an own notice of before.
  if turn == releaser and not later and c ~= releaser and not describe(releaser) then
    passed, left = true, true
    endTurn()
    restore()
  end
  if describe(c) and not call('ZSCORE', queue, c) then restore() end
  local placeless = out or not call('ZSCORE', queue, c)
  if (passed or listens(deafChannel(c))) and not had and not describe(c) and placeless then popped[#popped + 1] = c end
end
for _, c in ipairs(popped) do
  if left and owner == '' and turn == '' and offer(c, true) and window > 0 then
    forget(c)
    turn, till, changed = c, now + window, true
  end
end
-- Simba up to 3.1 tells nobody else. From 3.2 its contenders listen on the mutex' channel only.
if left and releases > 0 then freed = true end
handOn()
-- Others were faster. One that does not hear Simba itself would not know that it has to queue again;
-- one that does has queued at the end.
for i = #popped, 1, -1 do
  local c = popped[i]
  if (owner ~= '' or turn ~= '') and owner ~= c and turn ~= c and listening(c) then
    local first = call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    call('ZADD', queue, first[2] and first[2] - 0.000001 or time[1], c)
  end
end

local due = owner ~= '' and ends or turn ~= '' and till or 0
if unconfirmed then due = math.min(due, now + LATE / 2) end
if sweep and lapse ~= 0 and (due == 0 or lapse < due) then due = lapse end
return reply(status, 0, call('ZCARD', queue), due)
