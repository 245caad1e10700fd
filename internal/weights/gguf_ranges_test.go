package weights

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// rangeBlob is a file behind a server, read by ranges.
type rangeBlob struct {
	t    *testing.T
	url  string
	size int64
	read int64 // bytes that came
}

func (b *rangeBlob) Size() int64 { return b.size }

func (b *rangeBlob) ReadAt(p []byte, off int64) (int, error) {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url, nil)
	if err != nil {
		return 0, err
	}
	end := min(off+int64(len(p)), b.size)
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, end-1))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusPartialContent {
		return 0, fmt.Errorf("the server answers %s", res.Status)
	}
	n, err := io.ReadFull(res.Body, p[:end-off])
	b.read += int64(n)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// TestGGUFOverHTTP: of a file behind a server only what is asked for comes over the network.
func TestGGUFOverHTTP(t *testing.T) {
	t.Parallel()
	const path, name = "testdata/gguf/ernie-m-q4_k_m.gguf", "model.layers.1.mlp.up_proj.weight"
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "some.gguf", time.Time{}, bytes.NewReader(file))
	}))
	defer server.Close()
	blob := &rangeBlob{t: t, url: server.URL, size: int64(len(file))}
	got, err := OpenGGUF(t.Context(), "some.gguf", blob)
	if err != nil {
		t.Fatal(err)
	}
	if blob.read > ggufReadAhead {
		t.Errorf("opening read %d of %d bytes", blob.read, len(file))
	}
	want, err := OpenGGUFFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	blob.read = 0
	data, scales := loadRows(t, got, name, 100, 110)
	if rows := int64(10 * 144); blob.read != rows {
		t.Errorf("ten rows of one block of 144 bytes read %d bytes, want %d", blob.read, rows)
	}
	wantData, wantScales := loadRows(t, want, name, 100, 110)
	if !bytes.Equal(data, wantData) || !bytes.Equal(scales, wantScales) {
		t.Error("the rows differ from those of the file on disk")
	}
	wantSameWeights(t, got, want)
	server.Close()
	_, err = got.Rows(t.Context(), name, 0, 10)
	wantWords(t, err, "some.gguf", name)
}
