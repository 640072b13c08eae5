-- handoff: ends a tenure or a reservation that nobody can use any more, and hands the mutex off.
-- ARGV  7 contender  8 token, '0' = the reservation  9 ticket
if ARGV[8] == '0' then
  if owner == '' and reserved == ARGV[7] then endReservation() end
elseif owner == ARGV[7] and ARGV[8] == token and isGrantedTo(ARGV[9]) then
  endTenure('released', 'waiter gone')
end
handOff()
return reply('ok', 0, '')
