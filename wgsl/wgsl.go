// Package wgsl holds the kernels of Pagelight as WGSL files and one table that describes them (kernels.go).
//
// A file is complete on disk but for the functions of the lib files that its header names under "Needs", which Source
// appends: WGSL takes declarations in any order. Kernels are specialised by editing the values of named constants and by
// nothing else, so that what is compiled differs from what is on disk in a few numbers only.
//
// The text keeps to what naga 0.19, later nagas and Tint all accept: no f16, no override, no subgroups, no pointers to workgroup
// memory as parameters, no dynamic index into a value, barriers in uniform control flow only. Lib files whose names end in _subgroups
// stand for those without it where a device has subgroups. It knows nothing of any device.
package wgsl

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed *.wgsl
var files embed.FS

// Consts are the values of named constants of a kernel and of its libs.
type Consts map[string]uint32

// constant reads a line that declares a constant which Source can edit: const NAME: u32 = 1u; and perhaps more. Expressions cannot be
// edited.
func constant(line string) (name, value, rest string, ok bool) {
	line, ok = strings.CutPrefix(line, "const ")
	if !ok {
		return "", "", "", false
	}
	name, line, ok = strings.Cut(line, ": u32 = ")
	if !ok || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return "", "", "", false
	}
	value, rest, ok = strings.Cut(line, "u;")
	return name, value, rest, ok && value != "" && strings.Trim(value, "0123456789") == ""
}

// Source is the text of the kernel name with the lib files appended and the constants set. It fails on a file that does
// not exist and on a constant that none of the files declares.
func Source(name string, libs []string, consts Consts) (string, error) {
	var text strings.Builder
	if slices.ContainsFunc(libs, needsSubgroups) {
		text.WriteString("enable subgroups;\n")
	}
	for _, file := range append([]string{name}, libs...) {
		data, err := files.ReadFile(file + ".wgsl")
		if err != nil {
			return "", fmt.Errorf("wgsl: no file %s.wgsl", file)
		}
		text.Write(data)
	}
	missing := maps.Clone(consts)
	var source strings.Builder
	source.Grow(text.Len())
	for line := range strings.Lines(text.String()) {
		name, _, rest, ok := constant(line)
		if value, set := consts[name]; ok && set {
			delete(missing, name)
			line = fmt.Sprintf("const %s: u32 = %du;%s", name, value, rest)
		}
		source.WriteString(line)
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("wgsl: %s declares no constant %s", name,
			strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return source.String(), nil
}

const subgroups = "_subgroups"

func needsSubgroups(lib string) bool { return strings.HasSuffix(lib, subgroups) }

// WithSubgroups are lib files with those that use subgroups in place of their siblings; ok says whether there are any.
func WithSubgroups(libs []string) (list []string, ok bool) {
	all := LibFiles()
	for _, lib := range libs {
		if slices.Contains(all, lib+subgroups) {
			lib, ok = lib+subgroups, true
		}
		list = append(list, lib)
	}
	return list, ok
}

// Hash names the text of all files.
func Hash() string {
	sum := sha256.New()
	list, err := files.ReadDir(".")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, f := range list {
		data, err := files.ReadFile(f.Name())
		if err != nil {
			panic("BUG: " + err.Error())
		}
		fmt.Fprintln(sum, f.Name(), len(data))
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// text is one file as it is on disk.
func text(name string) string {
	data, err := files.ReadFile(name + ".wgsl")
	if err != nil {
		panic("BUG: no file " + name + ".wgsl")
	}
	return string(data)
}
