package gpu

import "errors"

var (
	// ErrOutOfMemory says that the device could not give the memory asked for.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrDeviceLost says that the device was reset, removed or closed; nothing made by it works any more.
	ErrDeviceLost = errors.New("device lost")
	// ErrInvalid says that the device refused a call as invalid: a fault in the caller, not in the machine.
	ErrInvalid = errors.New("invalid use of the device")
	// ErrNoAdapter says that there is no adapter of the kind asked for.
	ErrNoAdapter = errors.New("no adapter")
	// ErrNoTimestamps says that the device cannot tell how long its work takes.
	ErrNoTimestamps = errors.New("no timestamps")
)
