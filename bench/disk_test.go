package main

import (
	"strings"
	"testing"
)

func TestThePageNamesTheFileSystemThatHasTheData(t *testing.T) {
	const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
25 22 0:21 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1g
26 22 0:22 / /tmpdata rw master:1 propagate_from:2 - xfs /dev/vdb rw
27 22 254:1 / /srv rw - ext4 /dev/vdc rw
28 27 254:2 / /srv rw - btrfs /dev/vdd rw
`
	for path, want := range map[string]string{
		"/": "ext4", "/home/a/bench": "ext4", "/tmp": "tmpfs", "/tmp/bench": "tmpfs", "/tmpdata/x": "xfs", "/tmpx": "ext4",
		"/srv/x": "btrfs",
	} {
		if got, err := mountedAt(strings.NewReader(mounts), path); err != nil || got != want {
			t.Errorf("mountedAt(%s) is %s, %v, want %s", path, got, err, want)
		}
	}
	if kind, err := mountedAt(strings.NewReader("27 22 254:1 / /srv rw - ext4 /dev/vdc rw\n"), "/tmp"); err == nil {
		t.Errorf("mountedAt returns %s for /tmp, which no mount has, want an error", kind)
	}
}

func TestTheTimeOfASyncIsMeasuredWhereTheDataIs(t *testing.T) {
	dir := t.TempDir()
	if took, err := syncTime(dir); err != nil || took <= 0 {
		t.Errorf("syncTime returns %v, %v, want a time", took, err)
	}
	if took, err := syncTime(dir + "/none"); err == nil {
		t.Errorf("syncTime of a missing folder returns %v, want an error", took)
	}
}
