package kernels

// reduceParams are the Params of paged_attn_reduce, which always follows paged_attn_decode: see attnDecode.
type reduceParams struct{ Heads, Parts, Row0, Rows uint32 }
