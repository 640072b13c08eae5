-- queue: ARGV names no contender.
asker = ''
