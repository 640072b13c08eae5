// Package journal keeps a sequence of records on disk. It knows their indexes and their order, but
// not their contents.
//
//	journal/
//	  0000000007.seg    header │ 1040 │ 1041 │ … │ 1999 │ zeros, or an earlier use's frames
//	  0000000008.seg    header │ 2000 │ 2001 │ zeros, or an earlier use's frames
//	                                         ▲ Append writes here
//	  spare-0000000012  zeros, or an earlier use's frames
//
// A segment is a file that has its full length before Append writes records to it. So a sync writes
// only records, and no metadata such as a new file length. A spare is a file that will become a
// segment. A goroutine fills it with zeros in advance, or Release makes it from a segment. Spares
// are not part of the journal.
//
// A large record that fits into no spare gets a segment of its size. That file grows with the
// write, because filling it first would take longer than a commit may take.
//
// A record is one frame in one segment. Frames follow each other without gaps, each begins at a
// multiple of 8 bytes, and their indexes grow by one.
//
//	header   magic │ format │ store id │ number │ salt │ first index │ … │ checksum
//	frame    checksums │ index │ durable index │ length │ kind │ payload
//
// When a file becomes a segment, it gets a new random salt. The checksums of its frames depend on
// the salt. So a frame of an earlier use is invalid. No client sees a salt, so no client can forge
// a frame.
//
// # Invariants
//
// After a crash at any moment:
//
//   - Each .seg file has a complete header, and their numbers have no gap. A file gets such a name
//     only when its header is durable.
//   - Every record before a segment's first index is durable. Append syncs a full segment before it
//     begins the next one, and Open syncs the records that it recovers.
//   - Release renames a segment to a spare and syncs no directory, so a crash may undo the rename.
//     Then the file has the segment's name again, but may have the contents of a later use. The
//     checkpoint has all records of the released segment, so Open never reads the file. The file
//     system's rename must be atomic.
//   - All records up to a frame's durable index were durable before that frame was written.
//
// # Recovery
//
// Open reads the segments in order, from the one that has the first record after the checkpoint.
// In each it stops at the first invalid frame.
//
// In each segment but the last, the records must reach up to the first index of the next segment.
// If they end earlier, the segment is damaged. Frames after that are the torn end of an earlier run, or
// records that Truncate has dropped, and Open ignores them.
//
// In the last segment, Open searches the bytes after the first invalid frame. If a frame there
// states that the record in the invalid frame was durable, the segment is damaged. Otherwise the
// rest is the torn end of the last run. Open discards all of it, valid frames too: no Sync has
// returned for any of these records.
//
// Close writes a seal, which states that all records were durable. Without a seal, no frame states
// that the last record was durable. If that record cannot be read, Open takes it for a torn end,
// although it may be damaged. If the file of the last segment vanishes, Open takes the segment
// before it for the last one. Open notices the loss only if the checkpoint has a record of the
// vanished segment.
//
// Open reads all of this before it changes a file. If it finds an error in the
// files, it has changed nothing. Otherwise
// it begins a new segment, since nothing may be written behind a torn end. If the last segment has
// no record, the new one replaces it. So repeated failed starts need no more space.
//
// # Copies
//
// A copy that is made file by file while Append runs has every record that was durable when the
// copy began. There are three conditions:
//
//   - The names are listed before the first file is copied, as cp does.
//   - Release renames no listed segment before that segment is copied.
//   - Append writes nothing to a file while that file is copied. Otherwise the copy may have a
//     later frame and lack an earlier one.
//
// The checkpoint must be copied before the journal. Otherwise it may have records that the copy of
// the journal lacks. If a condition does not hold, Open may refuse the copy as damaged, or the
// last records may be missing. Open never skips a record.
package journal
