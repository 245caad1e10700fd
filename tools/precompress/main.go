// Command precompress writes FILE.br and FILE.gz beside each FILE, for servers that send what a browser accepts. Both
// formats are deterministic: the same file gives the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"

	"github.com/andybalholm/brotli"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := precompress(path); err != nil {
			fmt.Fprintln(os.Stderr, "precompress:", err)
			os.Exit(1)
		}
	}
}

func precompress(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		ext  string
		open func(io.Writer) (io.WriteCloser, error)
	}{
		{".gz", func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestCompression) }},
		{".br", func(w io.Writer) (io.WriteCloser, error) {
			return brotli.NewWriterLevel(w, brotli.BestCompression), nil
		}},
	} {
		var out bytes.Buffer
		w, err := c.open(&out)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(path+c.ext, out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
