package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	copyBytes    = 256 << 10
	defaultStall = time.Minute
)

// HashError says that what came is not what the hub states.
type HashError struct {
	File        File
	Found, Want string
}

// Error names the file and both hashes.
func (e *HashError) Error() string {
	return fmt.Sprintf("%s: what was downloaded has the hash %s, the hub states %s", e.File.Path, e.Found, e.Want)
}

// download is a file on its way into the cache.
type download struct {
	h      *Hub
	n      Name
	commit string
	f      File
	watch  Watcher

	part *os.File  // the blob under its name for incomplete ones
	sum  hash.Hash // of the bytes in part; nil when the hub states no hash
	at   int64     // how many there are
	best int64     // the most that there ever were
}

// fetch brings a file's blob into the cache and its link into the snapshot. The caller has looked that the snapshot lacks
// the file.
func (d *download) fetch(ctx context.Context) error {
	blob := d.h.blob(d.n.Repo, d.f.Etag)
	unlock, err := d.h.lockBlob(ctx, d.n.Repo, d.f.Etag, func() {
		d.watch.Note(d.f, "waiting for another process that downloads it")
	})
	if err != nil {
		return err
	}
	defer unlock()
	if st, err := os.Stat(blob); err == nil && st.Size() == d.f.Size {
		d.watch.Begin(d.f, d.f.Size)
		return d.h.link(d.n.Repo, d.commit, &d.f, false)
	}
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if d.part, err = os.OpenFile(blob+incomplete, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	err = d.fill(ctx)
	if err == nil {
		err = d.part.Sync() // or a crash of the machine could leave a whole name on half a file
	}
	if err = errors.Join(err, d.part.Close()); err != nil {
		return d.h.explain(ctx, d.n, d.f.Path, d.diskError(err))
	}
	if err := os.Rename(blob+incomplete, blob); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return d.h.link(d.n.Repo, d.commit, &d.f, true)
}

// fill takes up what an earlier attempt left, fetches the rest and checks the whole.
func (d *download) fill(ctx context.Context) error {
	if err := d.takeUp(ctx); err != nil {
		return err
	}
	resumed := d.at > 0
	d.watch.Begin(d.f, d.at)
	if free, ok := freeSpace(d.part.Name()); ok && free < d.f.Size-d.at {
		return fmt.Errorf("%s needs %s more, and %s has %s left", d.f.Path, FormatSize(d.f.Size-d.at), d.h.Cache, FormatSize(free))
	}
	for {
		if err := d.rest(ctx); err != nil {
			return err
		}
		err := d.verify()
		if err == nil {
			return nil
		}
		if restart := d.restart(); restart != nil {
			return errors.Join(err, restart)
		}
		if !resumed {
			return err
		}
		resumed = false // the beginning was another run's, which may have been at fault
		d.watch.Note(d.f, "what an earlier download left is damaged; beginning anew")
	}
}

// takeUp hashes what is there of the file.
func (d *download) takeUp(ctx context.Context) error {
	d.sum = newHash(&d.f)
	st, err := d.part.Stat()
	if err != nil {
		return err
	}
	if st.Size() > d.f.Size {
		return d.restart()
	}
	buf := make([]byte, copyBytes)
	for d.at < st.Size() {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := d.part.ReadAt(buf[:min(int64(len(buf)), st.Size()-d.at)], d.at)
		if n == 0 {
			return err
		}
		d.hash(buf[:n])
		d.at += int64(n)
	}
	d.best = d.at
	return nil
}

// restart forgets all that there is of the file.
func (d *download) restart() error {
	d.at, d.sum = 0, newHash(&d.f)
	if err := d.part.Truncate(0); err != nil {
		return err
	}
	d.watch.Advance(d.f, 0)
	return nil
}

// newHash hashes a file as the hub has done: sha256, or the sha1 that git computes, of a header and the content.
func newHash(f *File) hash.Hash {
	switch {
	case f.SHA256 != "":
		return sha256.New()
	case f.BlobID != "":
		sum := sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", f.Size)
		return sum
	}
	return nil
}

func (d *download) hash(p []byte) {
	if d.sum != nil {
		d.sum.Write(p)
	}
}

// verify compares the hash of the whole with the stated one. Without a stated one the size has to do.
func (d *download) verify() error {
	if d.sum == nil {
		return nil
	}
	want := d.f.SHA256
	if want == "" {
		want = d.f.BlobID
	}
	if found := hex.EncodeToString(d.sum.Sum(nil)); found != want {
		return &HashError{d.f, found, want}
	}
	return nil
}

// rest fetches what is missing, over as many connections as it takes.
func (d *download) rest(ctx context.Context) error {
	if d.at == d.f.Size {
		return nil
	}
	return d.h.retry(ctx, func(text string) { d.watch.Note(d.f, text) }, func() (bool, error) {
		err := d.attempt(ctx)
		further := d.at > d.best
		d.best = max(d.best, d.at)
		return further, err
	})
}

var contentRange = regexp.MustCompile(`^bytes (\d+)-(\d+)/(\d+|\*)$`)

// attempt fetches over one connection.
func (d *download) attempt(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := d.h.Stall
	if stall == 0 {
		stall = defaultStall
	}
	header := http.Header{"Accept-Encoding": {"identity"}}
	if d.at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.at))
	}
	silence := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer silence.Stop()
	resp, err := d.h.send(ctx, request{
		method: http.MethodGet, url: d.h.fileURL(d.n.Repo, d.commit, d.f.Path), header: header, checked: d.sum != nil,
	})
	var status *statusError
	if errors.As(err, &status) && status.status == http.StatusRequestedRangeNotSatisfiable && d.at > 0 {
		return errors.Join(&dropped{status.host, "it does not have the part that is missing; beginning anew"}, d.restart())
	}
	if err != nil {
		return stalled(ctx, err)
	}
	defer resp.Body.Close()
	host := resp.Request.URL.Host
	if err := d.expect(resp, host); err != nil {
		return err
	}
	buf := make([]byte, copyBytes)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			silence.Reset(stall)
			if int64(n) > d.f.Size-d.at {
				return fmt.Errorf("%s sends more than the %d bytes of %s that the hub states", host, d.f.Size, d.f.Path)
			}
			if _, err := d.part.WriteAt(buf[:n], d.at); err != nil {
				return err
			}
			d.hash(buf[:n])
			d.at += int64(n)
			d.watch.Advance(d.f, d.at)
		}
		switch {
		case errors.Is(err, io.EOF) && d.at == d.f.Size:
			return nil
		case ctx.Err() != nil:
			return stalled(ctx, &networkError{host, ctx.Err()})
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return &dropped{host, fmt.Sprintf("ended after %d of %d bytes", d.at, d.f.Size)}
		case err != nil:
			return stalled(ctx, &networkError{host, err})
		}
	}
}

// expect looks whether an answer is the file, or the part of it that was asked for. An answer from the beginning makes the
// download begin anew: such a server knows no ranges.
func (d *download) expect(resp *reply, host string) error {
	if etag := cleanEtag(resp.first.Get("X-Linked-Etag")); etag != "" && etag != d.f.Etag {
		return fmt.Errorf("%s states another hash for %s than its list of files did (%s, then %s)", d.h.Endpoint, d.f.Path, d.f.Etag, etag)
	}
	length := d.f.Size
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		m := contentRange.FindStringSubmatch(resp.Header.Get("Content-Range"))
		if m == nil || m[1] != strconv.FormatInt(d.at, 10) {
			return errors.Join(&dropped{host, "sent another part than was asked for; beginning anew"}, d.restart())
		}
		if m[3] != "*" && m[3] != strconv.FormatInt(d.f.Size, 10) {
			return fmt.Errorf("%s has %s bytes of %s, the hub states %d", host, m[3], d.f.Path, d.f.Size)
		}
		length -= d.at
	default:
		return fmt.Errorf("%s answered %d to a request for a file", host, resp.StatusCode)
	}
	// What is no such file must not cost what is there already.
	page := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") && !strings.HasSuffix(d.f.Path, ".html")
	if page || resp.ContentLength >= 0 && resp.ContentLength != length {
		begin, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came of it will do
		if title, ok := webPage(resp.Header.Get("Content-Type"), begin); ok {
			return &webPageError{host, title}
		}
		return fmt.Errorf("%s sends %d bytes for %s, the hub states %d", host, resp.ContentLength, d.f.Path, length)
	}
	if resp.StatusCode == http.StatusOK && d.at > 0 {
		d.watch.Note(d.f, host+" cannot resume; beginning anew")
		return d.restart()
	}
	return nil
}

// dropped says that a connection ended too early.
type dropped struct{ host, what string }

func (e *dropped) Error() string   { return fmt.Sprintf("connection to %s: %s", e.host, e.what) }
func (e *dropped) temporary() bool { return true }

var errStalled = errors.New("nothing came for too long")

// stalled replaces the error of a request that was cancelled for its silence.
func stalled(ctx context.Context, err error) error {
	var n *networkError
	if errors.Is(context.Cause(ctx), errStalled) && errors.As(err, &n) {
		return &networkError{n.host, errStalled}
	}
	return err
}

// diskError says plainly that a disk is full.
func (d *download) diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("no space is left on the disk of %s; %s needs %s", d.h.Cache, d.f.Path, FormatSize(d.f.Size))
	}
	return err
}

// hashFile hashes a file of the cache and compares.
func hashFile(ctx context.Context, path string, f File) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	d := &download{f: f, part: in, watch: silent{}}
	if err := d.takeUp(ctx); err != nil {
		return err
	}
	return d.verify()
}
