#!/usr/bin/env python3
"""Trains small SentencePiece BPE models with various options and writes
what the C++ library makes of some texts.  pip install sentencepiece==0.2.1
Run in this folder:  python3 generate.py
"""
import json
import random

import sentencepiece as spm

random.seed(1)
WORDS = "the a cat dog house tree runs eats sleeps big small red über naïve 你好 世界 天气 很好 12 345 don't e-mail".split()
LINES = [" ".join(random.choice(WORDS) for _ in range(random.randint(3, 12))) + random.choice([".", "!", "?", ""]) for _ in range(400)]
with open("corpus.tmp", "w", encoding="utf-8") as f:
    f.write("\n".join(LINES))
with open("rule.tmp", "w", encoding="utf-8") as f:
    # code points in hexadecimal, tab, their replacement
    f.write("FF21\t41\nFF22\t42\n3000\t20\n00C0 0301\t61\n00C0\t61 0062\n200B\t\n2026\t2E 2E 2E\n0009\t20\n")

OPTIONS = {
    "prefix": dict(add_dummy_prefix=True, remove_extra_whitespaces=True, byte_fallback=True, normalization_rule_name="identity"),
    "no_bytes": dict(add_dummy_prefix=True, remove_extra_whitespaces=False, byte_fallback=False, normalization_rule_name="identity",
                     user_defined_symbols=["<sep>", "<sep2>", "ca"], control_symbols=["<ctl>"]),
    "charsmap": dict(add_dummy_prefix=False, remove_extra_whitespaces=True, byte_fallback=True, normalization_rule_tsv="rule.tmp"),
    "suffix": dict(add_dummy_prefix=True, remove_extra_whitespaces=True, byte_fallback=False, treat_whitespace_as_suffix=True,
                   normalization_rule_name="identity"),
}
TEXTS = ["", " ", "  ", "the cat", " the  cat ", "the cat sleeps.", "cats", "a<sep>b <sep2>c<ctl>d", "你好世界", "Ａ\u3000Ｂ…\u00c0\u0301\u00c0x\u200by",
         "über naïve café", "tab\there\n new  line ", "qqq zzz", "\u2581the", "x" * 40, "the" * 20, "😀 smile 😀", "12345", "e\u0301", " \u3000 ", "don't e-mail!", "\ufffd", "<unk><s></s>",
         " lead", "trail ", "\u00a0nbsp", "<0x41>", "cacaca ca"]
TEXTS += ["".join(random.choice(["the ", "ca", "t", " ", "世", "界", "<sep>", "z", "é", ".", "\u2026", "\n"]) for _ in range(random.randint(1, 25))) for _ in range(60)]

out = {}
for name, options in OPTIONS.items():
    vocab = 400 if options["byte_fallback"] else 150
    spm.SentencePieceTrainer.train(input="corpus.tmp", model_prefix=name, model_type="bpe", vocab_size=vocab, hard_vocab_limit=False,
                                   character_coverage=0.98, minloglevel=2, **options)
    sp = spm.SentencePieceProcessor(model_file=name + ".model")
    if name == "no_bytes":  # the vocabulary restriction makes pieces UNUSED, which are taken apart again
        proto = __import__("sentencepiece.sentencepiece_model_pb2", fromlist=["x"]).ModelProto()
        proto.ParseFromString(open(name + ".model", "rb").read())
        normal = [p for p in proto.pieces if p.type == 1 and len(p.piece) > 2]
        for p in normal[::3]:
            p.type = 5
        with open(name + ".model", "wb") as f:
            f.write(proto.SerializeToString())
        sp = spm.SentencePieceProcessor(model_file=name + ".model")
    cases = []
    for t in TEXTS:
        ids = sp.encode(t)
        cases.append({"text": t, "ids": ids, "decoded": sp.decode(ids)})
    out[name] = cases
with open("vectors.json", "w", encoding="utf-8") as f:
    json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
    f.write("\n")
