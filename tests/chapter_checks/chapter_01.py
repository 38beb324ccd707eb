"""Values with which chapter 01's checks pass, and others with which they fire."""

from pathlib import Path
from types import SimpleNamespace

from chapter_cells import Case
from playbook.artifact import Artifact, Manifest, Origin
from serving_base.facts.models import ModelShape, model_shape

MODELS = [model_shape("llama-3-70b-instruct")]
TINY = model_shape("tiny").weight_bytes("full_prec")
NINE = "To count to nine in French, say: un, deux, trois, quatre, cinq, six, sept, huit, neuf."


def kv_bytes(m: ModelShape, element_bytes: float) -> float:
    return m.num_hidden_layers * 2 * m.num_key_value_heads * m.head_dim * element_bytes


def only_keys(m: ModelShape, element_bytes: float) -> float:
    return kv_bytes(m, element_bytes) // 2


class Tokenizer:
    """Ids of a prompt that begins with its own begin-of-text token; ``adds``: how many the defaults put before it."""

    bos_token_id = 1

    def __init__(self, adds: int = 1, own: int = 1) -> None:
        self.adds, self.own = adds, own

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [1] * (self.own + (self.adds if add_special_tokens else 0)) + [7, 8, 9]}


def made_for(release: str) -> Artifact:
    """A model without files, made for ``release``."""
    origin = Origin(kind="model", made_by="", release=release, gpu_arch="any", world_size=1, spec={}, inputs={})
    return Artifact(Path("model"), Manifest(origin=origin, files={}, created="", seconds=0))


class Texts:
    """In place of the package's texts: the baseline is what the test says."""

    def __init__(self, baseline: float) -> None:
        self.texts = SimpleNamespace(unigram_baseline=lambda tokenizer: baseline)


GUESS = SimpleNamespace(against=lambda actual: None)
ORIGIN = SimpleNamespace(release="0.12.0")
REFERENCE = SimpleNamespace(perplexity=48.0, tokens=8192)
CASES = [
    Case(
        "01-09",
        "the package's formula agrees",
        {"models": MODELS, "kv_bytes_per_token": kv_bytes, "kv_guess": GUESS},
        {"kv_bytes_per_token": only_keys},
    ),
    Case("01-bytes-d", "the tensors are those of the configuration", {"total": TINY}, {"total": TINY - 2}),
    Case(
        "01-refuse-b",
        "a model of another release is refused",
        {"model": made_for("0.12.0"), "origin": ORIGIN},
        {"model": made_for("1.2.1")},
    ),
    Case(
        "01-19",
        "the defaults add a second begin-of-text token",
        {"prompt": "text", "tokenizer": Tokenizer()},
        {"tokenizer": Tokenizer(adds=0)},
    ),
    Case(
        "01-19",
        "without them there is one",
        {"prompt": "text", "tokenizer": Tokenizer()},
        {"tokenizer": Tokenizer(own=2)},
    ),
    Case("01-22", "it counts to nine in French", {"answer": NINE}, {"answer": NINE.replace("neuf", "dix")}),
    Case(
        "01-24",
        "the model has learned",
        {"playbook": Texts(593.0), "tokenizer": None, "reference": REFERENCE},
        {"playbook": Texts(200.0)},
    ),
]
