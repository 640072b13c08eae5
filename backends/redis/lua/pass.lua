-- Passes on what reached nobody: a tenure, or a turn.
-- ARGV  6 contender  7 token, '0' = its turn  8 ticket
if ARGV[7] == '0' then
  if owner == '' and turn == ARGV[6] then turn, till, changed = '', 0, true end
elseif owner == ARGV[6] and ARGV[7] == token and heldBy(ARGV[8]) then
  vacate('released', 'waiter gone')
end
handOn()
return reply('seen', 0, '')
