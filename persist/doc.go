// Package persist keeps an engine's changes in a Pebble store: it is the
// durable journal behind the engine's Journal interface.
//
//	Append ──▶ next group ──▶ current group ──▶ Pebble's WAL ──▶ fsync
//	 (memory)     │               │                               │
//	Commit ───────┴── waits for ──┴───────────── done ◀───────────┘
//
// Changes are encoded at once into the next group, a Pebble batch in memory.
// When somebody asks for a change to be committed, one goroutine takes the whole
// group, writes it with a single fsync, and wakes all who wait for it; what is
// appended meanwhile makes up the next group. So the commands of a pipeline and
// of many clients share an fsync, and no caller runs inside Pebble. The log is filled
// with zeros ahead of what is written, so that an fsync has the data alone to write.
//
// What is told to a client must not be undone by a crash. The rule that decides
// it is in one place, (*Store).holds: a change that holds is not tellable before
// its group is synced, nor is any change after it. With Always every change of a
// lease holds. With Async only those whose loss would be dangerous even though
// the next run stays quiet for a while.
//
// # What is stored
//
//	m               the meta record: floors of Seq and of tokens, boot, quiet time
//	l <mutex>       a lease
//	h <first seq>   a segment of the history: the events of one group
//
// Every group carries the meta record, so it is never older or newer than the
// changes. Invariants, after a crash at any moment:
//
//   - the meta record's floors are at least every Seq and token ever told;
//   - its quiet time is at least the windows of every lease told but not stored;
//   - a lease is never shorter than it was told. Instants count from a boot of
//     the machine, so each lease names the boot, as a generation number; leases
//     of an earlier generation begin anew at one instant of this boot, which the
//     meta record fixes at the first start on it. A boot is another one if its
//     id differs, or the offset of the time namespace, or if the clock lies
//     behind the last record: then a lease would have more left than was granted.
//
// # Crash only
//
// The first write or fsync that fails, and a commit that hangs, end the process
// (Options.Fatal): an fsync that failed says nothing about which data is on disk,
// and a second one may succeed without having written it. The goroutine that met
// the failure never runs on, so no code of Pebble's sees it, retries or spins.
package persist
