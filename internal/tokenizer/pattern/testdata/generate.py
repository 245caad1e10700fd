"""Writes vectors.json: how Hugging Face's tokenizers (Oniguruma) splits texts by the patterns of known tokenizers.

Run with tokenizers 0.23: python3 generate.py
"""
import json
import random

from tokenizers import Regex, pre_tokenizers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPELLED = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
CASED = "".join("-".join(r"\x{%s}" % end for end in span.split("-")) for span in """
41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556
10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D
1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124
2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F
A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF
1E900-1E943""".split())
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama-bpe": SPELLED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": "|".join([
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?", r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTIONS + "?",
        r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"]),
    "cl100k possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "deepseek letters": r"\s?[" + CASED + "]+",
    "deepseek punctuation": r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    "deepseek spaces": r"\s+$",
    "deepseek-v3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|\s+(?!\S)|\s+",
    "default punctuation": r"[\p{P}\$\+<=>\^~\|]+",
    "threes from behind": r"\d{1,3}(?=(?:\d{3})*\b)",
    "words": r"\w+|[^\w\s]+",
    "lazy": r"a+?b|(?:ab){2,3}?|x??y|[^a]{2,}?c",
    "atomic": r"(?>a+|b)a|\Aa|z\z|^b|\bThe\b|\x41|\x{4f60}|(?i)k",
    "nothing": r"(?=a)|b*",
}

random.seed(5)
POOL = ["a", "b", "ab", "The", "the", " ", " ", "  ", "\t", "\n", "\r\n", "\n\n", "'", "'s", "'S", "'LL", "'ſ", "1", "23", "456789", "²", "Ⅷ", "½", ".", ",", "!?", "-", "_", "$", "+",
        "<|", "|>", "~", "你好", "世界", "。", "，", "　", "é", "e\u0301", "Ünï", "ß", "Ａ", "ω", "Ж", "ж", "ქ", "ʔ", "ƻ", "ªº", "한국", "かな", "カ", "ा", "क", "ت", "๑", "🤗", "👍🏽", "\u200d", "\u00a0", "\u2028",
        "\u0085", "\x0b", "\x1c", "\u180e", "\ufeff", "c", "x", "y", "z", "K", "\u212a", "k", "A", "/", "\\", "\"", "0", "\x00", "ǅ", "ʰ"]
texts = ["", "Hello, world! I'll say it's 12345 o'clock.", "   leading and trailing   ", "a\n\n  b\n", "\n \n  \n", "          x", "ab" * 20, "aab", "aaa", "The catThe The", "1234567 12a"]
texts += ["".join(random.choice(POOL) for _ in range(random.randint(1, 16))) for _ in range(240)]

out = {"texts": texts, "patterns": []}
for name, expr in PATTERNS.items():
    split = pre_tokenizers.Split(Regex(expr), "isolated")
    pieces = [[len(piece.encode()) for piece, _ in split.pre_tokenize_str(t)] for t in texts]
    out["patterns"].append({"name": name, "expr": expr, "pieces": pieces})
with open("vectors.json", "w") as f:
    json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
