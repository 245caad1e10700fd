//go:build cgo && !js

package wgpunative

import "testing"

func TestPortable(t *testing.T) {
	const source = "enable subgroups;\nconst WG: u32 = 64u;\nconst ROWS = 4u;\nconst HALF = WG / 2u;\n" +
		"@compute @workgroup_size(WG, ROWS, 1) fn a() {}\n@compute @workgroup_size(8) fn b() { let WG = 1; }\n"
	const plain = "\nconst WG: u32 = 64u;\nconst ROWS = 4u;\nconst HALF = WG / 2u;\n" +
		"@compute @workgroup_size(64, 4, 1) fn a() {}\n@compute @workgroup_size(8) fn b() { let WG = 1; }\n"
	if got := portable(source, false, false); got != plain {
		t.Errorf("got\n%s\nwant\n%s", got, plain)
	}
	if got := portable(source, true, true); got != source {
		t.Errorf("got\n%s\nwant it unchanged", got)
	}
}
