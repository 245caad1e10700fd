package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/pagelight/pagelight/internal/hub"
)

// byteSize is a number of bytes that a person may write as 512M or 2.5G (powers of 1,024).
type byteSize int64

// UnmarshalText reads a byteSize.
func (b *byteSize) UnmarshalText(text []byte) error {
	s := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(string(text))), "B"), "I")
	shift := 0
	if s != "" {
		if i := strings.IndexByte("KMGT", s[len(s)-1]); i >= 0 {
			shift, s = 10*(i+1), s[:len(s)-1]
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || v*float64(int64(1)<<shift) > 1<<62 {
		return fmt.Errorf("%q is no size in bytes: write 1500000000, 512M or 2.5G", text)
	}
	*b = byteSize(v * float64(int64(1)<<shift))
	return nil
}

// String writes a byteSize for people.
func (b byteSize) String() string {
	return hub.FormatSize(int64(b))
}

// isTerminal says whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
