// Package persist keeps an engine's changes on disk: it is the durable journal behind
// the engine's Journal interface.
//
//	Append ──▶ next group ──▶ current group ──▶ journal/*.seg ──▶ fsync
//	 (memory)      │               │                 │ full       │
//	Commit ────────┴── waits for ──┴────── done ◀────│────────────┘
//	                                                 ▼
//	                                  checkpointer ──▶ Pebble, in the background
//
// Append encodes a change at once into the next group, which is a record in memory. When
// somebody wants a change committed, one goroutine writes the whole group to the journal
// with a single fsync, and wakes all who wait for it. What is appended meanwhile makes up
// the next group. So a pipeline, or many clients, share an fsync.
//
// A change holds if a crash must not undo it once a client knows of it. It, and all
// changes after it, are tellable when its group is synced. (*Store).holds alone decides
// which changes hold. With Always every change of a lease does. With Async only a change
// does whose loss would be dangerous although the next run stays quiet for a while.
//
// # Files
//
//	SIMBA-RESP           says that the directory is ours, and that it holds a store
//	LOCK                 locked while a store is open
//	journal/*.seg        the records: see package journal
//	journal/spare-*      files that will be segments
//	*.sst, MANIFEST-* …  the checkpoint: Pebble's files. Its *.log are empty
//
// The checkpoint is what the records up to an index add up to:
//
//	m               the meta row: the index, floors of Seq and of tokens, epoch, quiet time
//	l <mutex>       a lease
//	h <first seq>   the events of one record
//
// When a segment is full, the checkpointer reads it as recovery would. It keeps the last
// change of each mutex and hands them to Pebble in one batch with the meta row. Pebble
// flushes that batch and needs no log: the journal has what a crash takes from it. The
// checkpointer releases a segment when the next one is full, too. A copy of the directory
// that begins with Pebble's files finds it until then.
//
// # Bounds
//
//   - While more than a segment's size of full segments waits for the checkpoint (maxBehind),
//     nothing is written. So a start reads at most twice that and the last segment, whose size is that
//     of the largest record if one does not fit into a segment.
//   - A record beyond 4 MiB (maxPending) is reduced to the last change of each mutex whenever it
//     has doubled.
//   - A record is closed before it has more than 256 MiB (maxRecord), but for its last transaction.
//   - The checkpoint has in memory the last changes of one segment, or of one larger record.
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
//   - no lease is shorter than a client was told.
//
// Instants count from a boot of the machine, so each lease names the boot by a generation
// number. Leases of an earlier generation begin anew at one instant of this boot, which the
// first start on it fixes in the epoch. A boot is another one if its id or the offset of the
// time namespace differs, or if the clock lies behind the last record.
//
// # Crash only
//
// A write or an fsync that fails, a checkpoint that fails, and a commit that hangs end the
// process (Options.Fatal). An fsync that failed does not say which data is on disk, and a
// second one may succeed without having written it. Where Pebble meets the failure, its
// goroutine never runs on: no code of Pebble's retries or spins.
package persist
