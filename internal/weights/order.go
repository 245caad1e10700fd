package weights

import "fmt"

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
