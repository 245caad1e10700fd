package engine

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTuningIsAddedTo choice by choice, and read again.
func TestTuningIsAddedTo(t *testing.T) {
	measured := func(key, chosen string) Measured { return Measured{Key: key, Default: "plain", Chosen: chosen} }
	var kept Tuning
	kept.Add("some GPU", []Measured{measured("a", "fast"), measured("b", "fast"), measured("c", "plain")})
	kept.Add("some GPU", []Measured{measured("b", "plain"), measured("d", "faster")})
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseTuning(text)
	if err != nil || !maps.Equal(got.Choices, map[string]string{"a": "fast", "d": "faster"}) || !slices.Equal(got.Measured, []string{"a", "b", "c", "d"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestForeignTuningIsRefused, whatever is wrong with it.
func TestForeignTuningIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "{", "null", "[]", `{"version": 99, "choices": {"a": "b"}}`, `{"choices": {"a": "b"}}`, `{"version": 1, "choices": ["a"]}`,
		`{"version": 1, "choices": {"a": 7}}`, `{"version": 1, "adapter": "` + strings.Repeat("x", MaxTuningBytes) + `"}`,
	} {
		if got, err := ParseTuning([]byte(text)); err == nil || got.Choices != nil {
			t.Errorf("%.60s gives %+v", text, got)
		}
	}
}
