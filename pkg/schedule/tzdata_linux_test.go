package schedule

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWithoutZoneFiles is F1's image without tzdata: a program in an empty root, where the only zones
// are those in its binary.
func TestWithoutZoneFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(root, "zones"), "./testdata/zones")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct{ cron, zone, want string }{
		{"30 2 * * *", "America/New_York", "2027-03-14T03:00:00-04:00\n2027-03-15T02:30:00-04:00\n"},
		{"30 2 * * *", "Asia/Kolkata", "2027-03-14T02:30:00+05:30\n2027-03-15T02:30:00+05:30\n"},
	} {
		cmd := exec.Command("/zones", c.cron, c.zone)
		cmd.Env = []string{"ZONEINFO=/nowhere"}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
			t.Errorf("%s in %s: %v\n%s", c.cron, c.zone, err, out)
		}
	}
}
