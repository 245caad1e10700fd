package weights

import (
	"encoding/binary"
	"fmt"
)

// checkOrder says whether the columns of a matrix have one input each, and each input its column.
func checkOrder(order []int32) error {
	seen := make([]bool, len(order))
	for i, from := range order {
		if from < 0 || int(from) >= len(order) {
			return fmt.Errorf("column %d belongs to input %d of %d", i, uint32(from), len(order))
		}
		if seen[from] {
			return fmt.Errorf("two columns belong to input %d, the second is column %d", from, i)
		}
		seen[from] = true
	}
	return nil
}

// sortColumns sorts the columns of a matrix by their group, those of a group staying in order, so that groups lie together.
// index holds the group of each column as little-endian i32. The order is nil when the columns are sorted already.
func sortColumns(index []byte, groups int) (counts []int, order []int32, err error) {
	counts = make([]int, groups)
	k := len(index) / 4
	sorted, last := true, int32(0)
	for i := range k {
		g := int32(binary.LittleEndian.Uint32(index[4*i:]))
		if g < 0 || int(g) >= groups {
			return nil, nil, fmt.Errorf("input %d is in group %d of %d", i, g, groups)
		}
		counts[g]++
		sorted = sorted && g >= last
		last = g
	}
	if sorted {
		return counts, nil, nil
	}
	next := make([]int, groups) // where the next column of a group goes
	for g := 1; g < groups; g++ {
		next[g] = next[g-1] + counts[g-1]
	}
	order = make([]int32, k)
	for i := range k {
		g := binary.LittleEndian.Uint32(index[4*i:])
		order[next[g]] = int32(i)
		next[g]++
	}
	return counts, order, nil
}
