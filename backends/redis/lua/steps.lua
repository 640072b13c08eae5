-- The steps for what is not the usual case; and first, take note of what time and other
-- programs have done to the mutex.
--
-- Most requests find nothing to settle and nobody waiting. Their scripts do them before
-- this, in a few lines that leave in Redis and publish what these steps would: Lua makes
-- its functions anew in each run, and that alone costs as much as the rest. Replies of
-- those are short: status, token, now.

-- refuse ends the script by an error that an operator must see to. A node that takes no writes
-- says so instead: what it has may be old.
local function refuse(why)
  prove(queue)
  error(why)
end

-- foreign refuses a key that other programs wrote. Nothing of theirs is overwritten.
local function foreign(key, what) refuse('key ' .. key .. ' ' .. what .. ': move it away') end

-- audible does so if the user may not publish what the script will. Redis tells since 7.0;
-- before, a change is made whose notice is refused, and a record of it may be missing.
local function audible()
  local may = redis.acl_check_cmd
  if may and not (may('PUBLISH', lock, '') and may('PUBLISH', 'simba-events:' .. string.sub(lock, 7), '')) then
    refuse('the user may not publish to the channels ' .. lock .. ' and simba-events:' .. string.sub(lock, 7))
  end
end

-- Redis runs a script that only reads on a replica too, and on a primary that takes no writes. So
-- the first step is a write that changes nothing: a node that takes no writes refuses it, and with
-- it the whole script. Neither replicas nor the append only file see it. Fast paths write, too.
-- Redis refuses SETRANGE when its memory is full. The script must know that before its first write
-- that needs no memory, since Redis checks the memory for none of the writes that follow one.
local full, refusal = false, redis.pcall('SETRANGE', tenure, 0, '')
if type(refusal) == 'table' then
  full = string.find(refusal.err, 'OOM ', 1, true) ~= nil
  if not full then call('SETRANGE', tenure, 0, '') end -- raises that error
  prove(queue)
end

local window, grace, cluster = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local changed, grants, events = false, {}, {}
-- Whether this script left the mutex free, other than at the end of a lease.
local freed = false
-- Before anything is done: a key of another type fails later steps.
local function expect(key, kind)
  local is = call('TYPE', key).ok
  if is ~= kind and is ~= 'none' then foreign(key, 'is not a ' .. kind) end
  return is == kind
end
expect(queue, 'zset')
expect(ended, 'hash')
local waits = expect(waiting, 'hash')
audible()

-- micros in decimal. Lua is slow to write numbers, and writes large ones as 1.8e+15.
local microsText = time[1] .. string.sub('00000' .. time[2], -6)

-- numberIn reads a token. Lua knows all whole numbers up to 2^53.
local function numberIn(key, text)
  local n = tonumber(text)
  if not n or n >= 9007199254740992 or string.find(text, '%D') then foreign(key, 'holds no token') end
  return n
end
-- The fence as a number.
local counter = state[3] and numberIn(fence, state[3]) or 0

-- The next tenure's token. The clock keeps tokens growing even if Redis lost all.
local function nextToken()
  local last = math.max(counter, tonumber(token))
  if last < micros then return microsText end
  return string.format('%.0f', last + 1)
end

-- raise has the fence hold the tenure's token at least. With renewed, an idle one goes later.
local function raise(till, renewed)
  local n = tonumber(token)
  if n > counter then
    counter = n
    if ARGV[6] == '0' then
      call('SET', fence, token)
    else
      call('SET', fence, token, 'PX', till - now + ARGV[6])
    end
  elseif renewed and ARGV[6] ~= '0' then
    call('PEXPIRE', fence, till - now + ARGV[6])
  end
end

-- put sets a key that expires at an instant of the clock that now is of. Redis may have been held
-- up since: an expiry counted from here could outlive the tenure.
local function put(key, value, till)
  if redis.pcall('SET', key, value, 'PXAT', till).err then -- before Redis 6.2
    call('SET', key, value, 'PX', KEEP)
    call('PEXPIREAT', key, till)
  end
end

-- hold sets the lock and the tenure's token until an end.
local function hold(who, till)
  put(lock, who, till .. '')
  put(mark, token, till .. '')
  raise(till)
end

-- extend moves the end of a lock that is there. Redis takes PEXPIREAT when its memory is full,
-- and then every write of the same script: it must be the first write of a renewal.
local function extend(who, till)
  if call('PEXPIREAT', lock, till .. '') == 0 then put(lock, who, till .. '') end
  if call('PEXPIREAT', mark, till .. '') == 0 then put(mark, token, till .. '') end
  raise(till, true)
end

local DAY = 86400000
-- Two clock readings of one script may differ by this much, in ms.
local SLACK = 20
-- A server that has not confirmed a grant for so long is taken for dead, in ms.
local LATE = 3000
-- The session of a tenure that did not come through our scripts.
local FOREIGN = '*'

-- An event goes to those who listen at other servers, and to ours with the reply.
local function event(kind, who, number, reason)
  local n = #events
  events[n + 1], events[n + 2], events[n + 3], events[n + 4] = kind, who, number, reason
  call('PUBLISH', 'simba-events:' .. string.sub(lock, 7),
    '{"at":' .. string.sub(microsText, 1, -4) .. ',"event":"' .. kind .. '","mutex":' .. cjson.encode(string.sub(lock, 8, -2)) ..
    ',"owner":' .. cjson.encode(who) .. ',"token":' .. number ..
    ',"reason":' .. cjson.encode(reason) .. ',"via":"' .. server .. '"}')
end

local function begin(t, tr, s)
  acquired, ttl, transition, ends = now, t, tr, now + t + tr
  session, untold, changed = s, '', true
end

local function renew(t, tr, s)
  begin(t, tr, s)
  extend(owner, ends)
end

-- grant begins a tenure for who has no place in the queue.
local function grant(c, t, tr, s, ticket, reason)
  token = nextToken()
  owner, turn, till = c, '', 0
  begin(t, tr, s)
  hold(owner, ends)
  untold = ticket
  if ticket ~= '' then served = string.match(ticket, '^[^!]*') .. ' ' .. token end
  event('acquired', c, token, reason)
  call('PUBLISH', lock, 'acquired@@' .. c)
end

-- A tenure that ran out before its waiter was told, or that its server seemed too dead to tell of, does not end the
-- wait. One that a command ends does: the next look of the server finds that.
local function finish(kind, reason)
  event(kind, owner, token, reason)
  if kind == 'broken' or kind == 'released' and reason ~= 'server gone' then
    if string.sub(served, -1 - #token) == ' ' .. token then served = served .. '!' end
    if string.match(untold, '/%d+$') then
      call('HSET', ended, untold, '')
      call('PEXPIRE', ended, KEEP)
    end
  end
  last, owner, session, untold, turn, till = owner, '', '', '', '', 0
  acquired, ttl, transition, ends = 0, 0, 0, 0
  unheard, changed = false, true
end

local function vacate(kind, reason)
  call('DEL', lock, mark)
  finish(kind, reason)
  freed = kind ~= 'expired'
end

-- endTurn leaves a free mutex to the next in line.
local function endTurn()
  turn, till, changed, freed = '', 0, true, true
end

local function save()
  local record
  if unheard then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse, true)
  elseif lapse ~= 0 or served ~= '' or till ~= 0 or turn ~= '' or untold ~= '' then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session, untold, turn, till, served, lapse)
  elseif session ~= '' then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition, session)
  elseif acquired ~= 0 then
    record = cmsgpack.pack(token, owner, last, acquired, ttl, transition)
  else
    record = cmsgpack.pack(token, owner, last)
  end
  call('SET', tenure, record, 'PX', KEEP)
end

local function forget(c)
  call('ZREM', queue, c)
  call('HDEL', waiting, c)
end

-- What is left of the lock, whoever set it. One without expiry is looked at daily.
local function remains()
  local ms = call('PTTL', lock)
  if ms < 0 then return DAY end
  return ms
end

-- elapsed is how many ms this script has run, or was held up.
local function elapsed()
  local later = call('TIME')
  return math.floor((later[1] * 1000000 + later[2]) / 1000) - now
end

-- follow gives the tenure the lock's end, where ms is what remains of it, and its token the same.
-- Redis may have been held up since it read now: the end may be taken for too late, as long as the
-- lock itself is looked at, but never for too early.
local function follow(ms)
  ms = elapsed() + ms
  transition = math.min(transition, ms)
  acquired, ttl, ends, changed = now, ms - transition, now + ms, true
  if call('PEXPIREAT', mark, ends .. '') == 0 then put(mark, token, ends .. '') end
  raise(ends, true)
end

-- The seed's guard moves the lock's end without our knowing: same tenure, new end.
local function compare()
  local ms = remains()
  local off = now + ms - ends
  -- An owner of ours counts on its end: it is shortened only if it is surely too late.
  if off > SLACK or off < -SLACK and off + elapsed() < -SLACK then follow(ms) end
end

-- same: the lock may be of the record's tenure, if the owner is the same. One of Simba from 3.3 has
-- its own token. Another owner's in between shows by the fence.
local same = shown == token or not shown and counter <= tonumber(token)
-- passed: a tenure ended, or passed, of which these scripts made no note.
-- left: it was released by another program.
-- spent: a lease of ours ran out, and nobody else had a token since.
local passed, left, spent = false, false, false

-- adopt takes in a tenure that began without us. Its owner took a token since 3.3; else it gets the next.
local function adopt(ms)
  if shown and numberIn(mark, shown) > tonumber(token) then
    token = shown
  else
    token = nextToken()
    call('DEL', mark)
  end
  owner, turn, till = holder, '', 0
  session, untold, transition = FOREIGN, '', 0
  follow(ms)
  forget(owner) -- the seed's winner stays in its own queue
  event('acquired', owner, token, '')
  passed = true
end

if owner ~= '' and holder == owner and now < ends and same then
  -- The usual case: the record is right.
elseif holder then
  local ms = remains()
  if holder == owner and same and ms <= SLACK then
    vacate('expired', '') -- Redis expires a key after its last millisecond, not at its end
  elseif holder == owner and same and session == FOREIGN then
    follow(ms)
  elseif full and not state[2] and holder ~= asker and not breaks then
    return { err = "OOM command not allowed when used memory > 'maxmemory'." } -- no record for somebody new
  else
    if owner ~= '' then
      local early = now < ends
      finish(early and 'released' or 'expired', '')
      unheard = early
    end
    adopt(ms)
  end
else
  if owner ~= '' then
    passed, left = true, now < ends
    spent = not left and session ~= FOREIGN and counter <= tonumber(token)
    finish(left and 'released' or 'expired', '')
    unheard = left
  elseif counter > tonumber(token) then
    token, passed, changed = state[3], true, true -- nobody of ours saw its tenures
    if turn ~= '' then endTurn() end
  end
  if shown then -- Simba up to 3.2 knows no token
    numberIn(mark, shown)
    call('DEL', mark)
  end
end
if turn ~= '' and till <= now then endTurn() end

