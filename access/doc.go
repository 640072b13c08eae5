// Package access knows the users of a server and what each may do, in the words of
// Redis' access control lists (https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/).
//
//	aclfile ─ parse ─► Account "alice" ──► *User (does not change) ─► MayRun, MayUse, MayActAs, MayName, …
//	                        ▲                ▲
//	      a connection holds it      Load puts another in its place, or none
//
// It knows neither the wire nor what a command does: commands are numbers of a
// Catalog, keys are mutex names, channels and contender ids are strings.
//
// Invariants:
//
//   - A User does not change once it is made; whoever judges a command by one judges
//     all of it by the same rules.
//   - An Account lives as long as a user of that name exists. When Load removes the
//     user, the account ends for ever; one of the same name made later is another.
//   - Load is all or nothing: a file with a fault changes nothing.
//   - A password is kept as its SHA-256 only, and compared in constant time.
//
// What differs from Redis 7: selectors "(…)" and first-argument rules "+select|0" are
// refused in words that say so, and there is one more kind of rule, as:<glob>, for
// the contender ids that a user may act in the name of.
package access
