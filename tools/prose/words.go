package main

import "regexp"

// The words that this project has replaced by the field's terms. Some of them, such as line, pass,
// place and turn, have an ordinary use, too. They are banned only in identifiers, or in phrases.
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
	// ordinary has pairs of words that an identifier may contain, although one of the two is banned
	// when it stands alone.
	ordinary      = set(`lookup turnon turnoff inturn inplace zookeeper zookeepers`)
	bannedPhrases = regexp.MustCompile(`\b(whose turn|ha(s|d|ve) (had )?(a|no|its|their) turn|` +
		`(wait|waits|waiting|stand|stands|standing) in (a |the )?line|queue place|places? in (the|a) (queue|line))\b`)
)
