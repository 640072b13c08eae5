-- Passes on what reached nobody: a tenure, or a turn.
-- ARGV  5 contender  6 token, '0' = its turn  7 ticket
if ARGV[6] == '0' then
  if owner == '' and turn == ARGV[5] then turn, till, changed = '', 0, true end
elseif owner == ARGV[5] and ARGV[6] == token and heldBy(ARGV[7]) then
  vacate('released', 'waiter gone')
end
handOn()
return reply('seen', 0, '')
