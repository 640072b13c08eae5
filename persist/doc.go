// Package persist keeps an engine's changes on disk: it is the durable journal behind
// the engine's Journal interface.
//
//	Append ──▶ next group ──▶ current group ──▶ journal/*.seg ──▶ fsync
//	 (memory)      │               │                 │ full       │
//	Commit ────────┴── waits for ──┴────── done ◀────│────────────┘
//	                                                 ▼
//	                                  checkpointer ──▶ Pebble, in the background
//
// Changes are encoded at once into the next group, a record in memory. When somebody
// asks for a change to be committed, one goroutine takes the whole group, writes it to
// the journal with a single fsync, and wakes all who wait for it. What is appended
// meanwhile makes up the next group. So the commands of a pipeline and of many clients
// share an fsync. Only that goroutine syncs what it waits for.
//
// A crash must not undo what was told to a client. The rule that decides it is in one
// place, (*Store).holds: a change that holds is not tellable before its group is synced,
// nor is any change after it. With Always every change of a lease holds. With Async only
// those whose loss would be dangerous even though the next run stays quiet for a while.
//
// # Files
//
//	SIMBA-RESP           says that the directory is ours, and that it holds a store
//	LOCK                 locked while a store is open
//	journal/*.seg        the records, in segments of 16 MiB: see package journal
//	journal/spare-*      files that will be segments
//	*.sst, MANIFEST-* …  the checkpoint: Pebble's files. Its *.log are empty
//
// The checkpoint is what the records up to an index add up to:
//
//	m               the meta row: the index, floors of Seq and of tokens, epoch, quiet time
//	l <mutex>       a lease
//	h <first seq>   the events of one record
//
// When a segment is full, the checkpointer reads it as recovery would, keeps the last
// change of each mutex, and hands them to Pebble in one batch with the meta row. When
// that is flushed and the next segment is full, the segment is released: a copy of the
// directory, in which Pebble's files come first, finds it until then. Pebble needs no log:
// what a crash takes from it is still in the journal.
//
// While more than 16 MiB of full segments wait for the checkpoint, nothing is written. So a
// start reads at most three segments (two that are full, and the last), 48 MiB, and the
// directory has these and spares, at most 64 MiB together, and the checkpoint. A
// record that is larger than a segment has one of its size; beyond 4 MiB a record has only
// the last change of each mutex.
//
// # Recovery
//
// Open brings the checkpoint up to the journal's end, by the code of the checkpointer,
// and reads the leases and the history from it. Then the run's first record states its
// epoch and its floors. A record that is replayed twice changes nothing.
//
// Invariants, after a crash at any moment:
//
//   - the floors are at least every Seq and token ever told;
//   - the quiet time is at least the windows of every lease told but not stored;
//   - the journal has every durable record behind the checkpoint's index;
//   - a lease is never shorter than it was told. Instants count from a boot of
//     the machine, so each lease names the boot, as a generation number. Leases
//     of an earlier generation begin anew at one instant of this boot, which the
//     epoch fixes at the first start on it. A boot is another one if its
//     id differs, or the offset of the time namespace, or if the clock lies
//     behind the last record: then a lease would have more left than was granted.
//
// # Crash only
//
// The first write or fsync that fails, a checkpoint that fails, and a commit that hangs
// end the process (Options.Fatal): an fsync that failed says nothing about which data is
// on disk, and a second one may succeed without having written it. Where Pebble meets
// the failure, its goroutine never runs on, so no code of Pebble's sees it, retries or
// spins. The journal alone is enough for the next start.
package persist
