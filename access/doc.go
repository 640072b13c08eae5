// Package access holds the users of a server and their rights, in the language of Redis' access
// control lists (ACL):
// https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/
//
//	aclfile ─ parse ─► Account "alice" ──► *User (immutable) ─► MayRun, MayUse, MayActAs, …
//	                        ▲                ▲
//	      a connection has it         Load replaces or removes it
//
// The package knows neither the protocol nor the commands. Commands are numbers of a Catalog, keys
// are mutex names, and channels and contender ids are strings.
//
// Invariants:
//
//   - A User is immutable, so one command is checked against one set of rules.
//   - An Account lives as long as a user of that name exists. When Load removes the user, the
//     account ends for ever. A later user of that name has another account.
//   - Load is all or nothing: a file with an error changes nothing.
//   - A password is kept as its SHA-256 only, and compared in constant time.
//
// Differences from Redis 7: selectors "(…)" and first-argument rules "+select|0" are refused with
// errors of their own. Rules as:<glob> name the contender ids that a user may act as.
package access
