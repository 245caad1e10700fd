package gpu

import "context"

// ReadLater is a Fetch for devices on which nothing can go on while bytes are read back: it reads when it is waited for.
func ReadLater(d Device, src Buffer) Fetch { return readLater{d, src} }

type readLater struct {
	d   Device
	src Buffer
}

func (f readLater) Wait(ctx context.Context, dst []byte) error { return f.d.Read(ctx, f.src, 0, dst) }
