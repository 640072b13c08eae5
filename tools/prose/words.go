package main

import "regexp"

// Words that this project replaced by terms of the field. A word with an ordinary use, such as
// place or turn, is banned only in identifiers or in phrases.
var (
	banned = set(`lobby lobbies chronicle chronicles agenda appointment appointments banish banished banishes bell bells census desk exorcise
		ghost ghosts haunt haunts haunted heir heirs keeper ledger outbox poke pokes poked prod prods prodded
		pursuit pursuits radio radios reign rivals settle settles settled settling sights station stations
		strays supervise supervises supervised tellable tidings tuner untold vigil`)
	bannedInIdentifiers = set(`lobby chronicle agenda appointment appointments banish banished bell bells brief census desk ear ears
		exorcise ghost ghosts guesses haunt heir heirs keeper keepers lane lanes lay ledger look looked looks outbox
		passage permit permits poke pokes place prod prods prompt pursuit pursuits radio radios reign rival rivals
		seat seats settle settled settles settling sights station stations strays supervise supervised tell tellable
		telling tells tidings told tuner turn turns untold vigil visit visited visits`)
	// ordinary has pairs of adjacent words that are allowed in an identifier, although
	// bannedInIdentifiers has one of the two words.
	ordinary      = set(`lookup turnon turnoff inturn inplace zookeeper zookeepers`)
	bannedPhrases = regexp.MustCompile(`\b(whose turn|ha(s|d|ve) (had )?(a|no|its|their) turn|` +
		`(wait|waits|waiting|stand|stands|standing) in (a |the )?line|queue place|places? in (the|a) (queue|line))\b`)
)
