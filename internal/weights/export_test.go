package weights

// SetStripBytes makes a folder's source read quantized matrices in smaller strips.
func SetStripBytes(src Source, n int) { src.(*dirSource).unpacker.strip = n }
