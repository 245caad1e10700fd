package builtin

// The bundle is made from the checkpoint that models/ernie-tiny of the fixtures holds. The same checkpoint gives the same
// bytes; a test of package gen compares.
//
//go:generate go run ./gen -model $PAGELIGHT_FIXTURES/models/ernie-tiny
