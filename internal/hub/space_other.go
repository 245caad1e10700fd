//go:build !(linux || darwin)

package hub

// freeSpace is not known here; a full disk is told when it is full.
func freeSpace(string) (int64, bool) { return 0, false }
