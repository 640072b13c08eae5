// Package persist keeps an engine's changes on disk. Its Store implements engine.Journal.
//
//	             committer
//	Append ──▶ next group ──▶ current group ──▶ journal/*.seg ──▶ fsync
//	 (memory)      │               │                 │ full       │
//	Commit ────────┴── waits for ──┴────── done ◀────│────────────┘
//	                                                 ▼
//	                                  checkpointer ──▶ Pebble, in the background
//
// Append encodes a change into the next group, which is a record in memory. Commit starts the
// writer, which writes the whole group to the journal with a single fsync. Changes that are
// appended meanwhile make up the next group. Thus many clients share one fsync.
//
// Some changes must be synced: a client must not see such a change, or a later one, before it is
// durable. The committer's mustSync decides which these are. In Async they are few, because the
// recovery delay of the next run makes the loss of most changes safe.
//
// # Files
//
//	SIMBA-RESP           marks the directory as a data directory, and says whether it has a store
//	LOCK                 locked while a store is open
//	MEMBER               only of a cluster's member: what it knows of itself and of the others
//	snapshot-*           only of a cluster's member: snapshots that it has received
//	.MEMBER and so on    files that were not complete when the server stopped
//	journal/*.seg        the records: see package journal
//	journal/spare-*      files that will be segments
//	*.sst, MANIFEST-* …  the checkpoint, in Pebble's files. Pebble's *.log files are empty
//
// Records have consecutive indexes. The checkpoint is the state after all records up to an index,
// in rows:
//
//	m               the meta row: that index, floors of Seq and of tokens, epoch, recovery delay
//	l <mutex>       a lease
//	h <first seq>   the events of one record
//
// A floor is at least every Seq, or every token, that a client has seen. In a new store both floors
// are the wall clock in microseconds, which is beyond the numbers of a store that was lost. An epoch
// names a boot of the machine.
//
// When a segment is full, the checkpointer reads it with the code of recovery. It writes the last
// change of each mutex to Pebble, in one batch with the meta row, and flushes the batch. The batch
// needs no log, because the journal still has the records.
//
// The checkpointer does not remove this segment from the journal before it makes the next
// checkpoint. So a program that has copied Pebble's files before this checkpoint still finds the
// segment if it copies the journal before the next one.
//
// # Records
//
// A record has all that a reader needs, on any machine: see head and decodePut. A second replay of
// a record changes nothing.
//
// # Bounds
//
//   - The writer waits while the full segments that the checkpoint lacks have more than
//     Options.SegmentSize bytes in all (maxBehind). So a start reads at most two full segments
//     and the last one. Each may be as large as the largest record.
//   - A record beyond 4 MiB (maxPending) is reduced to the last change of each mutex whenever its
//     size has doubled. Without its last transaction, a record has at most 256 MiB (maxRecord).
//   - The checkpointer keeps in memory the last change of each mutex in one segment, or in one
//     larger record.
//   - A commit waits for a checkpoint as long as the checkpoint makes progress. The commit fails if
//     one write or sync of the checkpoint takes longer than Options.CommitTimeout.
//
// # Recovery
//
// Open brings the checkpoint up to the journal's end, with the code of the checkpointer. It reads
// the leases and the history from the checkpoint. Then it writes the run's first record, with the
// run's floors. If the machine has booted meanwhile, the meta row gets the new epoch before.
//
// Invariants, after a crash at any moment:
//
//   - the floors are at least every Seq and token that a client has seen;
//   - the recovery delay is at least TTL + transition of every granted lease that is not stored;
//   - the journal has every durable record after the checkpoint's index;
//   - no stored lease is shorter than the lease that the engine granted.
//
// Instants count from a boot of the machine, so each lease names its boot by a generation number.
// The first start on a boot stores the instant of that start in the epoch. At that instant, all
// leases of earlier generations begin anew. A start is on another boot if the boot's id or the time
// namespace's offset differs. Open also assumes another boot if the clock is behind the last
// record.
//
// # Clusters
//
// A Replica is the files of a member. The committer is the leader's: Lead returns a Store whose
// committer proposes its records to the members, instead of writing them. What a record has is the
// same for all members, but for the instant of receipt and the generation, which are each member's own.
// The head has the term, too. Since a record may be replaced until a majority has it, the checkpoint
// ends at the last final one.
//
// # Backups
//
// A backup is the rows of the checkpoint, which Backup brings up to date first. A Pebble iterator
// keeps them unchanged while a client reads them. Restore writes them to a new directory, with
// another meta row.
//
// # Failures
//
// The process ends (Options.Fatal) if a write, an fsync or a checkpoint fails, or if a commit
// hangs. After a failed fsync nobody knows which data is on disk. A second fsync may succeed
// without having written that data. After a failure Pebble changes nothing on disk any more: its
// goroutines block, and Close lets them end (strictFS).
package persist
