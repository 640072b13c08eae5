asker = '' -- the arguments name none
