package weights

// ggufVocabulary gives the tokenizer's files that stand for a vocabulary.
func ggufVocabulary(metadata) (map[string][]byte, error) {
	return nil, nil
}
