"""What Triton's C++ backend reads of a config.pbtxt's parameters, as a view of ``data/triton/backend.yml``."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from serving_base.record import Record
from trtllm_check.releases.load import DATA_DIR, Raw, checked, known_releases, view
from trtllm_check.releases.release import Confidence

FILE = DATA_DIR / "triton" / "backend.yml"
PYTHON_FILE = DATA_DIR / "triton" / "python_models.yml"
Kind = Literal["string", "bool", "int", "float", "list"]
# What the backend's conversions take: std::stoi and its kin read as far as there are digits.
FORMS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "bool": re.compile(r"[Tt]rue|TRUE|1|[Ff]alse|FALSE|0"),
        "int": re.compile(r"\s*[+-]?\d.*", re.DOTALL),
        "float": re.compile(r"\s*[+-]?(?:\d|\.\d|inf|nan).*", re.DOTALL | re.IGNORECASE),
    }
)


class BackendParameter(Record):
    """One parameter. ``required``: what the backend says where it is missing, "" where it takes ``default``.

    ``alternative``: the parameter that may stand for a required one; ``needed_by``: the decoding mode that wants it;
    ``values``: the words that it knows, empty for any; ``earlier``: those of releases without facts;
    ``otherwise``: what another word does; ``says``: its message.
    """

    type: Kind
    default: str = ""
    required: str = ""
    alternative: str = Field(default="", alias="or")
    needed_by: str = ""
    values: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    otherwise: Literal["default", "refused"] = "default"
    says: str = ""

    def takes(self, value: str) -> bool:
        """True if the backend converts ``value``, or knows it."""
        form = FORMS.get(self.type)
        return value in self.values if self.values else form is None or form.fullmatch(value) is not None


class BackendReads(Record):
    """Where the parameters of a release were read, and what they are.

    ``others``: keys that Triton reads of any model; ``instead``: what names of templates and flags are called here;
    ``inputs_beside``: inputs that the backend reads and no template declares.
    """

    source: str
    confidence: Confidence
    note: str = ""
    parameters: dict[str, BackendParameter]
    others: tuple[str, ...]
    instead: dict[str, str]
    inputs_beside: tuple[str, ...]


@cache
def backend_reads(release: str) -> BackendReads | None:
    """What the backend of ``release`` reads; None for a release without it."""
    facts: Raw = view(release).of_file(FILE)
    read = facts.pop("read", None)
    if read is None or not isinstance(read, dict):
        return None
    return checked(BackendReads, {**facts, **read}, f"the backend of release {release}", FILE)


class ParameterWords(Record):
    """The words of a parameter of a model in Python, in lower case, and what another word means."""

    values: tuple[str, ...]
    default: str


@cache
def python_words(model: str, release: str) -> dict[str, ParameterWords]:
    """The parameters of ``model``, one of the models in Python, that are words."""
    facts: Raw = view(release).of_file(PYTHON_FILE)
    return {
        name: checked(ParameterWords, words, f"{name} of {model} in release {release}", PYTHON_FILE)
        for name, words in facts.get(model, {}).items()
    }


@cache
def parameter_releases(name: str) -> tuple[str, ...]:
    """The releases whose backend reads the parameter ``name``, oldest first."""
    found = ((release, backend_reads(release)) for release in known_releases())
    return tuple(release for release, reads in found if reads and name in reads.parameters)
