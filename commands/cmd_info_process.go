package commands

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"syscall"
	"time"
)

// memory is the memory of the process, in bytes.
type memory struct {
	used     uint64 // memory that Go uses: heap with garbage, stacks, runtime; without free memory
	resident uint64 // memory in RAM, as the kernel reports it; if unknown, the value of used
	system   uint64 // RAM of the machine; 0 = unknown
	goal     uint64 // heap size at which the garbage collector runs next
	cycles   uint64 // completed runs of the garbage collector
}

func readMemory() memory {
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	m := memory{used: usedMemory(), resident: residentMemory(), system: systemMemory()}
	m.goal, m.cycles = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	if m.resident == 0 {
		m.resident = m.used
	}
	return m
}

func usedMemory() uint64 {
	samples := [...]metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples[:])
	used := samples[0].Value.Uint64()
	for _, s := range samples[1:] {
		used -= s.Value.Uint64()
	}
	return used
}

// residentMemory reads the second field of /proc/self/statm, a number of pages.
func residentMemory() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// systemMemory reads the first line of /proc/meminfo: "MemTotal: 16384 kB".
func systemMemory() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0
	}
	kib, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// notePeak records a value of used memory and returns the largest value so far.
func (x *Commands) notePeak(used uint64) uint64 {
	for {
		peak := x.memPeak.Load()
		if used <= peak {
			return peak
		}
		if x.memPeak.CompareAndSwap(peak, used) {
			return used
		}
	}
}

func cpuTime() (user, system time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}
