-- ARGV  5 reason
local status = 'lost'
if owner ~= '' then
  status = 'released'
  vacate('broken', ARGV[5])
end
handOn()
return reply(status, 0, '')
