package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is the pause between two looks at a lock that somebody else holds.
const lockPoll = 100 * time.Millisecond

// repoLock is the name of the lock that pulls of a repository share and that removing takes alone. Hugging Face's own
// libraries do not know it; they only lock single blobs, by files that are named as lockBlob names them.
const repoLock = ".pagelight"

// lockBlob waits until no other process, or goroutine, works on a blob. waiting hears once that it has to.
func (h *Hub) lockBlob(ctx context.Context, repo, etag string, waiting func()) (unlock func(), err error) {
	l, err := h.newLock(repo, etag)
	if err != nil {
		return nil, err
	}
	ok, err := l.TryLock()
	if err == nil && !ok {
		if waiting != nil {
			waiting()
		}
		_, err = l.TryLockContext(ctx, lockPoll)
	}
	if err != nil {
		return nil, fmt.Errorf("hub: lock %s: %w", l.Path(), err)
	}
	return func() { _ = l.Unlock() }, nil
}

// shareRepo keeps others from removing a repository while it is written.
func (h *Hub) shareRepo(ctx context.Context, repo string) (unlock func(), err error) {
	l, err := h.newLock(repo, repoLock)
	if err != nil {
		return nil, err
	}
	if _, err := l.TryRLockContext(ctx, lockPoll); err != nil {
		return nil, fmt.Errorf("hub: lock %s: %w", l.Path(), err)
	}
	return func() { _ = l.Unlock() }, nil
}

// ownRepo is for whoever removes from a repository. It does not wait.
func (h *Hub) ownRepo(repo string) (unlock func(), err error) {
	l, err := h.newLock(repo, repoLock)
	if err != nil {
		return nil, err
	}
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("hub: lock %s: %w", l.Path(), err)
	}
	if !ok {
		return nil, fmt.Errorf("hub: %s%s is being downloaded by another process; wait for it or stop it", Prefix, repo)
	}
	return func() { _ = l.Unlock() }, nil
}

func (h *Hub) newLock(repo, name string) (*flock.Flock, error) {
	dir := filepath.Join(h.Cache, ".locks", repoFolder(repo))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	// Others who share the cache must be able to wait for it too.
	return flock.New(filepath.Join(dir, name+".lock"), flock.SetPermissions(0o664)), nil
}
