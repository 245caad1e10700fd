//go:build linux || darwin

package hub

import "syscall"

// freeSpace is the number of bytes that this user may still write to the file system of a folder; false when unknown.
func freeSpace(dir string) (int64, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || st.Bsize <= 0 {
		return 0, false
	}
	size := uint64(st.Bsize)
	return int64(min(st.Bavail, 1<<62/size) * size), true
}
