#!/usr/bin/env python3
"""Writes tests/support/tokenizers: small tokenizer.json files, and the tokens that the package `tokenizers` gives for texts.

    scripts/make_tokenizers.py [FOLDER]

It needs the package (pip install tokenizers); the tests of the repository do not.
"""

import json
import os
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END = "<|endoftext|>"

TEXTS = [
    "The cat sat on the mat.\nThe cat's hat isn't the dog's.\n",
    "  two  spaces, three   and a\ttab \n\n \n end  ",
    "I'VE we'll they'd 'tis don'T ''s 'ſ",
    "1234567 12 3.14 1,000,000 ½ ² Ⅷ x1y22",
    "Häuser, naïve, Škoda — “quotes” … €5",
    "日本語のテキスト、 한국어 텍스트 العربية हिन्दी",
    "emoji 😀👍🏽 👨‍👩‍👧 flags 🇩🇪\u200b\u00a0nbsp\u3000wide",
    "a<|endoftext|>b <|endoftext|> c<s></s><mask>  <mask>\n<mask> x",
    "<|endoftext|>",
    "snake_case camelCase __init__(self): return x**2 != y[i]\r\n\r\n\tpass\r",
    " leading and ▁ mark ▁▁x",
    "\x00\x01\x1f\x7f control\u0085next",
    "www.example.org/path?query=1&b=2#top !!! ??\n\n\n???",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa abababababababababab",
    "wow!!\n\n" + 30 * " " + "<mask>!!\n<mask> we'll they've you're 'll!!!\n\n\nx",
    "",
]


def corpus() -> list[str]:
    text = (ROOT / "docs" / "TRAINING.md").read_text()
    contractions = "we'll they've you're it's don't I'm he'd !!\n\n" * 30
    return [text, contractions, *TEXTS[:7], *TEXTS[9:10]]


def train(model, pre_tokenizer, decoder, *, normalizer=None, alphabet=False, size=380, special=(END,), **options):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    initial = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=initial, show_progress=False, **options
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def with_byte_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """The same with tokens <0x00> to <0xFF>, which stand for the bytes of unknown characters."""
    file = json.loads(tokenizer.to_str())
    vocabulary = file["model"]["vocab"]
    for byte in range(256):
        vocabulary.setdefault(f"<0x{byte:02X}>", len(vocabulary))
    file["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(file))


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**options)


def tokenizers() -> dict[str, Tokenizer]:
    end, level = (END,), decoders.ByteLevel()
    mask = [AddedToken("<mask>", lstrip=True), AddedToken("<s>", rstrip=True), AddedToken("at", normalized=True)]
    found = {
        "gpt2": train(models.BPE(), byte_level(add_prefix_space=False), level, alphabet=True),
        "prefix": train(models.BPE(), byte_level(add_prefix_space=True), level, alphabet=True),
        "llama3": train(
            models.BPE(ignore_merges=True),
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(CL100K), "isolated"),
                    byte_level(add_prefix_space=False, use_regex=False),
                ]
            ),
            level,
            alphabet=True,
        ),
        "qwen2": train(
            models.BPE(),
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(CL100K.replace("{1,3}", "")), "removed", invert=True),
                    byte_level(add_prefix_space=False, use_regex=False),
                ]
            ),
            level,
            alphabet=True,
            normalizer=normalizers.NFC(),
        ),
        "digits": train(
            models.BPE(),
            pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(add_prefix_space=True)]),
            level,
            alphabet=True,
        ),
        "unknown": train(models.BPE(unk_token="[UNK]"), pre_tokenizers.Whitespace(), None, special=("[UNK]", END),
                         limit_alphabet=60),
        "fused": train(models.BPE(unk_token="[UNK]", fuse_unk=True), pre_tokenizers.WhitespaceSplit(), None,
                       special=("[UNK]", "</s>"), limit_alphabet=60),
        "suffix": train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), pre_tokenizers.WhitespaceSplit(),
                        decoders.BPEDecoder(), special=("<unk>", END), end_of_word_suffix="</w>"),
        "metaspace": with_byte_tokens(
            train(models.BPE(unk_token="<unk>", fuse_unk=True), pre_tokenizers.Metaspace(prepend_scheme="first"),
                  decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)]),
                  special=("<unk>", "<s>", "</s>"), limit_alphabet=50)
        ),
        "always": train(models.BPE(unk_token="<unk>"), pre_tokenizers.Metaspace(prepend_scheme="always"),
                        decoders.Metaspace(prepend_scheme="always"), special=("<unk>", *end), limit_alphabet=60),
        "added": train(models.BPE(), byte_level(add_prefix_space=True), level, alphabet=True),
    }
    found["added"].add_special_tokens(mask[:2])
    found["added"].add_tokens([mask[2], "  ", "    "])
    found["added3"] = Tokenizer.from_str(found["llama3"].to_str())
    found["added3"].add_special_tokens(mask[:2])
    return found


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "support" / "tokenizers"
    folder.mkdir(parents=True, exist_ok=True)
    cases = {}
    for index, (name, tokenizer) in enumerate(tokenizers().items()):
        path = folder / f"{name}.json"
        tokenizer.save(str(path), pretty=False)
        if index % 2:  # merges as "LEFT RIGHT", as older versions of the package wrote them
            file = json.loads(path.read_text())
            merges = file["model"]["merges"]
            if not any(" " in part for merge in merges for part in merge):
                file["model"]["merges"] = [" ".join(merge) for merge in merges]
            path.write_text(json.dumps(file, ensure_ascii=False))
        cases[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    lines = [f'"texts": {json.dumps(TEXTS, ensure_ascii=True)}']
    lines += [f'"{name}": {json.dumps(ids, separators=(",", ":"))}' for name, ids in cases.items()]
    (folder / "cases.jsonc").unlink(missing_ok=True)
    (folder / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(cases)} tokenizers in {os.path.relpath(folder)}")


if __name__ == "__main__":
    main()
