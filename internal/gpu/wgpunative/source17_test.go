//go:build cgo && !js && wgpu17 && !wgpu29

package wgpunative

import "testing"

func TestPortable(t *testing.T) {
	const source = "const WG: u32 = 64u;\nconst ROWS = 4u;\nconst HALF: u32 = (WG + ROWS) / 2u;\nconst LOW: f32 = -4.0;\nconst S: i32 = 3;\n" +
		"@compute @workgroup_size(WG, HALF, 1) fn a() {}\n@compute @workgroup_size(8) fn b() { let WG = 1; }\n"
	const want = "const WG: u32 = 64u;\nconst ROWS = 4u;\nconst HALF: u32 = 34u;\nconst LOW: f32 = -4.0;\nconst S: i32 = 3;\n" +
		"@compute @workgroup_size(64, 34, 1) fn a() {}\n@compute @workgroup_size(8) fn b() { let WG = 1; }\n"
	if got := portable(source); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
