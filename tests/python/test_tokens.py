"""Characters and pieces: training, encoding, and the tokens of the package tokenizers where it is installed."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurve

FOLDER = Path(__file__).resolve().parent.parent / "support" / "tokenizers"
TEXT = "the cat, the dög and the hat\n" * 80
TINY: "dict[str, Any]" = {
    "hidden": 16,
    "batch": 4,
    "length": 16,
    "steps": 3,
    "effort": "estimate",
    "progress": False,
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_characters(text: Path, tmp_path: Path) -> None:
    model = recurve.train(text, level="character", output=tmp_path / "model.safetensors", **TINY).model
    assert model.level == "character"
    assert model.vocabulary is not None and "ö" in model.vocabulary and "\n" in model.vocabulary
    known = {character: i for i, character in enumerate(model.vocabulary)}
    assert model.encode("dög\n€").tolist() == [known[c] for c in "dög\n"] + [known["<unk>"]]
    assert model.encode("").tolist() == [known["\n"]]
    generated = model.generate("dö", tokens=20, temperature=1.0)
    assert len(generated.replace("<unk>", "?")) == 20
    assert model.evaluate(text).counted == len(TEXT) - 1


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_pieces(text: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.safetensors"
    model = recurve.train(text, vocabulary=FOLDER / "gpt2.json", kind=kind, output=path, **TINY).model
    assert model.level == "piece"
    cases = json.loads((FOLDER / "cases.json").read_text())
    end = json.loads((FOLDER / "gpt2.json").read_text())["added_tokens"][0]["id"]
    begin = [end] if kind == "lines" else []
    for given, tokens in zip(cases["texts"], cases["gpt2"]):
        if given:
            assert model.encode(given).tolist() == begin + tokens
    (text.parent / "gpt2.json").unlink(missing_ok=True)
    again = recurve.load(path)  # the model has all that is needed
    assert again.encode("the hat").tolist() == model.encode("the hat").tolist()
    assert again.evaluate(text).counted > 0
    assert isinstance(again.generate("the", tokens=5), str)
    resumed = recurve.train(resume=path, steps=5, output=path, progress=False).model
    assert resumed.level == "piece"


def test_level_of_vocabulary(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a vocabulary of pieces cannot be used for a text at word level"):
        recurve.train(text, vocabulary=FOLDER / "gpt2.json", level="word", output=tmp_path / "m.safetensors", **TINY)
    with pytest.raises(ValueError, match="needs a tokenizer.json"):
        recurve.train(text, level="piece", output=tmp_path / "m.safetensors", **TINY)


FRAGMENTS = (
    ["the", " cat", "The", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u200b", "\u0085", "'s", "'S", "'ſ", "'LL"]
    + ["1", "1234", "½", "٣", "é", "日本", "한국", "हि", "😀", "👍🏽", "!", "...", "_", "—", "<", "<|endoftext|>", "<|endof"]
    + ["<mask>", "<s>", "</s>", "at", "▁", " ▁", "Ⓐ", "ß", "\u0301", "$", "[UNK]", "    ", "\x00", "\x7f", "\ufeff"]
)


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.json")) if path.stem != "cases"])
def test_against_tokenizers(text: Path, tmp_path: Path, name: str) -> None:
    """Texts at random have the tokens that the package gives, or are refused with a sentence."""
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer.from_file(str(FOLDER / f"{name}.json"))
    text.write_text("the cat and the hat\n" * 80)
    model = recurve.train(
        text, vocabulary=FOLDER / f"{name}.json", kind="stream", output=tmp_path / "m.safetensors", **TINY
    ).model
    generator = random.Random(3)
    compared = 0
    for _ in range(400):
        given = "".join(generator.choice(FRAGMENTS) for _ in range(generator.randrange(1, 20)))
        try:
            tokens = model.encode(given)
        except (ValueError, NotImplementedError) as error:
            assert "NFC" in str(error) or "no token" in str(error)
            continue
        assert tokens.dtype == np.int64
        assert tokens.tolist() == reference.encode(given, add_special_tokens=False).ids, repr(given)
        compared += 1
    assert compared > 200
