-- Passes on what reached nobody: a tenure, or a turn.
-- ARGV  7 contender  8 token, '0' = its turn  9 ticket
if ARGV[8] == '0' then
  if owner == '' and turn == ARGV[7] then endTurn() end
elseif owner == ARGV[7] and ARGV[8] == token and heldBy(ARGV[9]) then
  vacate('released', 'waiter gone')
end
handOn()
return reply('seen', 0, '')
