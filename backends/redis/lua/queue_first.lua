-- The first line of queue: ARGV names no contender.
asker = ''
