package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
)

// safetensorsWriter writes f32 tensors in the safetensors format (u64 header length, JSON header, data). The header is
// known at the end only, so the data waits in a file beside the final one, which appears when it is whole.
type safetensorsWriter struct {
	path   string
	data   *os.File // nil after abort
	header map[string]tensorHeader
	size   int64
	err    error // the first one
}

type tensorHeader struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

func createSafetensors(path string) (*safetensorsWriter, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".data-*")
	if err != nil {
		return nil, err
	}
	return &safetensorsWriter{path: path, data: f, header: map[string]tensorHeader{}}, nil
}

// add writes a tensor; errors are kept for close.
func (w *safetensorsWriter) add(name string, shape []int, values []float32) {
	if w.err != nil {
		return
	}
	buf := make([]byte, 0, 4*len(values))
	for _, v := range values {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	_, w.err = w.data.Write(buf)
	w.header[name] = tensorHeader{"F32", shape, [2]int64{w.size, w.size + int64(len(buf))}}
	w.size += int64(len(buf))
}

// close puts header and data together.
func (w *safetensorsWriter) close() (err error) {
	if w.err != nil {
		return w.err
	}
	header, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	part := w.path + ".part"
	out, err := os.Create(part)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err == nil {
			err = os.Rename(part, w.path)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	if _, err := out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))); err != nil {
		return err
	}
	if _, err := out.Write(header); err != nil {
		return err
	}
	if _, err := w.data.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(out, w.data)
	return err
}

// abort removes the temporary file; it follows close too.
func (w *safetensorsWriter) abort() error {
	if w.data == nil {
		return nil
	}
	err := errors.Join(w.data.Close(), os.Remove(w.data.Name()))
	w.data = nil
	return err
}
