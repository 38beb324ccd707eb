"""Values with which chapter 01's checks pass, and others with which they fire."""

from pathlib import Path
from types import SimpleNamespace
from types import SimpleNamespace as Thing

from chapter_cells import Case, Fresh
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


def shape(name: str, vocabulary: int = 10, lost: int = 0) -> Thing:
    """A model of two blocks; ``lost``: parameters that are in none of its parts."""
    ends, linear = 2 * vocabulary * 10, 2 * 10 * 40 + 600
    own = {"num_key_value_heads": 1, "head_dim": 10, "num_hidden_layers": 2, "hidden_size": 10}
    counted = {"linear_parameters": linear, "embedding_parameters": ends, "parameters": (linear + ends) * 1.0001 + lost}
    return Thing(name=name, vocab_size=vocabulary, **own, **counted)


def sizes(*fit: float) -> Thing:
    """The package, in which vocabularies have so many bytes a token, smallest first."""
    given = iter(fit)
    words = Thing(
        train_sizes=lambda sizes: dict.fromkeys(sizes), held_texts=list, bytes_per_token=lambda one, texts: next(given)
    )
    return Thing(vocabulary=words, plots=Thing(lines=lambda *drawn, **named: None))


def ends(times: int) -> dict[str, object]:
    """Llama-2 beside Llama-3 with a vocabulary four times as large, and ends ``times`` as large."""
    old, new = shape("old"), shape("new", 40)
    new.embedding_parameters = times * old.embedding_parameters
    facts = Thing(known_shape=lambda name: old)
    return {"models": [old, new], "playbook": Thing(models=facts, vocabulary=Thing(counted_source=lambda: "read"))}


SHAPES = Thing(plots=Thing(stacked=lambda *drawn, **named: None))

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
    Case(
        "01-shape-b",
        "the parts are all but the norms",
        {"models": [shape("tiny"), shape("70B")], "playbook": SHAPES},
        {"models": [shape("tiny"), shape("70B", lost=500)]},
    ),
    Case(
        "01-vocab-b",
        "each step makes tokens longer, and by less",
        {"playbook": Fresh(lambda: sizes(2.0, 3.0, 4.0, 4.5))},
        {"playbook": Fresh(lambda: sizes(2.0, 3.0, 4.0, 6.5))},
    ),
    Case(
        "01-vocab-b",
        "each step makes tokens longer, and by less",
        {"playbook": Fresh(lambda: sizes(2.0, 3.0, 4.0, 4.5))},
        {"playbook": Fresh(lambda: sizes(2.0, 3.0, 4.0, 3.5))},
    ),
    Case("01-vocab-e", "the ends grow with the vocabulary", ends(4), ends(5)),
]
