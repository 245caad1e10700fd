package loadtest

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Machine is where the load came from; the server may be another.
type Machine struct {
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu,omitempty"` // "" where the system has no /proc
	Cores       int    `json:"cores"`         // logical, that this process may use
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	Go          string `json:"go"`
}

// ThisMachine describes this machine.
func ThisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), Go: runtime.Version()}
	m.CPU = procField("/proc/cpuinfo", "model name")
	if kib, err := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryBytes = kib << 10
	}
	return m
}

// procField gives the first value of a name in a file of lines "name : value"; "" where there is none.
func procField(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if k, v, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
