// Package posix runs the tests of POSIX behaviour that come with go-fuse on a mounted pool.
package posix

import (
	"os"
	"sort"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// Tests that do not hold on tmpfs and ext4 either, and why.
var notPosix = map[string]string{
	"FcntlFlockLocksFile": "both descriptors are one process's, whose own lock is never in its way",
}

// Each test has an empty directory of the mount for itself.
func TestPosix(t *testing.T) {
	mount := os.Getenv("NEARSIDE_MOUNT")
	if mount == "" {
		t.Fatal("NEARSIDE_MOUNT names no directory")
	}
	var names []string
	for name := range posixtest.All {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if why, ok := notPosix[name]; ok {
				t.Skip(why)
			}
			dir, err := os.MkdirTemp(mount, name)
			if err != nil {
				t.Fatal(err)
			}
			posixtest.All[name](t, dir)
		})
	}
}
