-- ARGV  7 reason
local status = 'lost'
if owner ~= '' then
  status = 'released'
  vacate('broken', ARGV[7])
end
handOn()
return reply(status, 0, '')
