"""Makes small tokenizer.json files and vectors.json: ids and texts that Hugging Face's tokenizers gives for them.

Run with tokenizers 0.23: python3 generate.py
"""
import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = open("../../../../engine/local/testdata/holdout.txt", encoding="utf-8").read().splitlines()[:1500]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
BYTES = pre_tokenizers.ByteLevel.alphabet()


def train(tok, size, byte_level, specials):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=BYTES if byte_level else [],
                                  limit_alphabet=300 if byte_level else 120, max_token_length=16, show_progress=False)
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def byte_level(pre, size=700, normalizer=None, specials=("<|end|>",), **model):
    tok = Tokenizer(models.BPE(**model))
    if normalizer:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    return train(tok, size, True, list(specials))


def sequence(*items):
    return pre_tokenizers.Sequence(list(items))


def with_bytes(tok):
    """Puts <0x00> to <0xFF> behind the special tokens, as a SentencePiece vocabulary has them."""
    data = json.loads(tok.to_str())
    vocab = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    names = vocab[:3] + ["<0x%02X>" % b for b in range(256)] + vocab[3:]
    data["model"]["vocab"] = {name: i for i, name in enumerate(names)}
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return Tokenizer.from_str(json.dumps(data))


def gpt2():
    tok = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tok.add_tokens([AddedToken("<plain>", normalized=False), AddedToken("two words", normalized=True)])
    tok.add_special_tokens([AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("<w>", single_word=True)])
    return tok


def llama3():
    tok = byte_level(sequence(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
                     specials=("<|begin|>", "<|end|>"), ignore_merges=True)
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                              processors.TemplateProcessing("<|begin|> $A", "<|begin|> $A $B", [("<|begin|>", 0)])])
    # A token that merging does not reach.
    data = json.loads(tok.to_str())
    data["model"]["vocab"]["Ġteapots"] = max(data["model"]["vocab"].values()) + 1
    return Tokenizer.from_str(json.dumps(data))


def qwen2():
    return byte_level(sequence(pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
                      normalizer=normalizers.NFC())


def smollm():
    return byte_level(sequence(pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)))


def mixed():
    return byte_level(sequence(pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"), pre_tokenizers.Split("e", "merged_with_previous"),
                               pre_tokenizers.Split(Regex(r"[A-Z]+"), "merged_with_next"), pre_tokenizers.Punctuation("contiguous"),
                               pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex(r"\t"), "removed"),
                               pre_tokenizers.Split(Regex(r"[^~]+"), "removed", invert=True),
                               pre_tokenizers.ByteLevel(add_prefix_space=True)),
                      normalizer=normalizers.Sequence([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex("x+"), "xyz"), normalizers.NFKC()]))


def llama2():
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok = with_bytes(train(tok, 600, False, ["<unk>", "<s>", "</s>"]))
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B", [("<s>", 1), ("</s>", 2)])
    tok.add_tokens([AddedToken("late one", normalized=True)])
    return tok


def metaspace():
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    tok = train(tok, 400, False, ["<unk>", "<s>"])
    tok.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    return tok


def words():
    tok = Tokenizer(models.BPE(unk_token="<unk>"))
    tok.pre_tokenizer = sequence(pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace(replacement="_", prepend_scheme="always", split=False))
    tok = train(tok, 300, False, ["<unk>"])
    tok.decoder = decoders.Metaspace(replacement="_", prepend_scheme="always", split=False)
    return tok


random.seed(7)
POOL = ["the ", "teapots", " teapots", "Hello", ", ", ". ", "\n", "\n\n", "\t", " ", "   ", "'s", "'LL", "12", "3456", "你好", "世界", "，", "é", "e\u0301", "Å", "ﬁ", "x", "xx", "🤗", "ß", "~", "E", "AB",
        "<|end|>", "<|begin|>", "<plain>", "two words", "<l>", "<r>", "<w>", "<s>", "</s>", "<unk>", "late one", "\u00a0", "_", "▁", "e", "Once upon", " a time", "\u0000", "0"]
texts = ["", " ", "Hello, world!", " Hello", "<|end|>Hello", "<s> Hello</s>world", "a <l> b<r>  c<w>d <w> e", "late one, late one", "𝒳 ﷺ", "the cat's 1234567 teapots\n\n  x"]
texts += [line[:60] for line in random.sample(CORPUS, 12)]
texts += ["".join(random.choice(POOL) for _ in range(random.randint(1, 10))) for _ in range(70)]

out = {"texts": texts, "tokenizers": {}}
for make in (gpt2, llama3, qwen2, smollm, mixed, llama2, metaspace, words):
    tok = make()
    name = make.__name__
    with open(name + ".json", "w", encoding="utf-8") as f:
        json.dump(json.loads(tok.to_str()), f, ensure_ascii=False, separators=(",", ":"))
    ids = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    around = tok.encode("x", add_special_tokens=True).ids, tok.encode("x", add_special_tokens=False).ids
    at = next(i for i in range(len(around[0])) if around[0][i:i + len(around[1])] == around[1])
    out["tokenizers"][name] = {"ids": ids, "decoded": [tok.decode(i, skip_special_tokens=False) for i in ids], "skipped": [tok.decode(i) for i in ids],
                               "before": around[0][:at], "after": around[0][at + len(around[1]):]}
with open("vectors.json", "w") as f:
    json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
