package gpu

import "unsafe"

// Bytes views numbers as the bytes that a device sees; every target of Go that has a driver here is little-endian.
func Bytes[T uint32 | int32 | float32](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
