-- ARGV  6 reason
local status = 'lost'
if owner ~= '' then
  status = 'released'
  vacate('broken', ARGV[6])
end
handOn()
return reply(status, 0, '')
