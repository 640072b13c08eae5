-- giveback: ends a tenure or a reservation that nobody at this server can take, and hands the mutex
-- off. It keeps a tenure that the contender has renewed since the grant.
-- ARGV  7 contender  8 token, '0' = the reservation  9 ticket
if ARGV[8] == '0' then
  if owner == '' and reserved == ARGV[7] then endReservation() end
elseif owner == ARGV[7] and ARGV[8] == token and isGrantedTo(ARGV[9]) then
  endTenure('released', 'waiter gone')
end
handOff()
return finish('ok', 0, '')
