-- break: ends the tenure, whoever owns the mutex.
-- ARGV  7 reason
local status = 'lost'
if owner ~= '' then
  status = 'released'
  endTenure('broken', ARGV[7])
end
handOff()
return finish(status, 0, '')
