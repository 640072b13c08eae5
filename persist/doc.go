// Package persist keeps an engine's changes on disk. A Store is an engine's Journal.
//
//	Append ──▶ next group ──▶ current group ──▶ journal/*.seg ──▶ fsync
//	 (memory)      │               │                 │ full       │
//	Commit ────────┴── waits for ──┴────── done ◀────│────────────┘
//	                                                 ▼
//	                                  checkpointer ──▶ Pebble, in the background
//
// Append encodes a change into the next group, which is a record in memory. Commit has one
// goroutine write the whole group to the journal with a single fsync. Changes that are
// appended meanwhile make up the next group. So a pipeline, or many clients, share an fsync.
//
// Some changes must be synced: a client must not see such a change, or a later one, before it is
// durable. (*Store).mustSync alone decides which these are. With Always it is every change of a
// lease. With Async it is a change whose loss the recovery delay of the next run would not make
// safe.
//
// # Files
//
//	SIMBA-RESP           marks the directory as a data directory, and says that it has a store
//	LOCK                 locked while a store is open
//	journal/*.seg        the records: see package journal
//	journal/spare-*      files that will be segments
//	*.sst, MANIFEST-* …  the checkpoint: Pebble's files. Its *.log are empty
//
// The checkpoint is the sum of the records up to an index:
//
//	m               the meta row: the index, floors of Seq and of tokens, epoch, recovery delay
//	l <mutex>       a lease
//	h <first seq>   the events of one record
//
// When a segment is full, the checkpointer reads it with the code of recovery. It keeps the last
// change of each mutex, and writes these to Pebble in one batch with the meta row. Pebble
// flushes that batch. It needs no log, because the journal still has the records. The
// checkpointer releases a segment one step late: a copy of the directory that begins with
// Pebble's files finds it until then.
//
// # Records
//
// A record says all that a reader needs to know, on any machine: see head. The start of a
// lease's windows is relative to the record. A reader adds it to its own clock's reading when
// the record was made, or arrives. A record that is replayed twice changes nothing.
//
// # Bounds
//
//   - While more than one segment's size of full segments waits for the checkpoint (maxBehind),
//     the writer waits. So a start reads at most twice that and the last segment. Each may be as
//     large as the largest record.
//   - A record beyond 4 MiB (maxPending) is reduced to the last change of each mutex whenever it
//     has doubled.
//   - A record is closed before it has more than 256 MiB (maxRecord), but for its last transaction.
//   - The checkpoint has in memory the last changes of one segment, or of one larger record.
//   - A commit that waits for a checkpoint waits as long as that goes on. It fails if one write or
//     sync takes longer than Options.CommitTimeout.
//
// # Recovery
//
// Open brings the checkpoint up to the journal's end, with the code of the checkpointer. It
// reads the leases and the history from the checkpoint. The run's first record has its epoch
// and its floors. Replay does the same for a store that stays open.
//
// Invariants, after a crash at any moment:
//
//   - the floors are at least every Seq and token that a client has seen;
//   - the recovery delay is at least the windows of every granted lease that is not stored;
//   - the journal has every durable record behind the checkpoint's index;
//   - no lease is shorter than its owner was granted.
//
// Instants count from a boot of the machine, so each lease names the boot by a generation
// number. Leases of an earlier generation begin anew at one instant of this boot, which the
// first start on it stores in the epoch. A boot is another one if its id or the offset of the
// time namespace differs, or if the clock is behind the last record.
//
// # Backups
//
// A backup is the rows of the checkpoint, which Backup brings up to date first. An iterator of
// Pebble's keeps them as they were, so the store goes on while a client reads them. Restore writes
// them to a new directory. The epoch in its meta row names no boot, so every lease begins anew at
// the first start. The floors and the recovery delay are Restore's own.
//
// # Failures
//
// The process ends (Options.Fatal) if a write, an fsync or a checkpoint fails, or if a commit
// hangs. After an fsync that failed nobody knows which data is on disk. A second one may
// succeed without having written it. A goroutine of Pebble's that meets the failure never runs
// on, so Pebble retries nothing.
package persist
