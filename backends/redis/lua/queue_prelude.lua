-- The prelude of queue: ARGV names no contender.
asker = ''
