"""speculative_config of TensorRT-LLM's LLM API, in YAML and in Python: names, kinds, and what a kind needs."""

from collections.abc import Iterator, Mapping, Set
from difflib import get_close_matches

from serving_base.errors import NotYaml
from trtllm_check.flows.options import written_options
from trtllm_check.lint.document import ConfigFile, Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.llm_options import option_place
from trtllm_check.lint.shell.words import Word
from trtllm_check.releases.load import in_range

FAMILY = "speculative"
RULE = "speculative-config"
OPTION = "speculative_config"
CLASS = "DecodingConfig"
NEAR = 0.6


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for file in document.option_files:
        settings = _settings(file)
        kind = str(settings.get("decoding_type", ""))
        places = {name: option_place(file, name) for name in (OPTION, *settings)}
        yield from _names(settings.keys(), places, file.path, release)
        if settings and not file.places:
            yield from _kind(kind, places, file.path, release)
            yield from _needs(kind, settings.keys(), places[OPTION], file.path, release)
    for call in document.calls:
        if call.api == "tensorrt_llm" and call.name.endswith(CLASS):
            places = {word.text: word for word in call.arguments}
            yield from _names(places.keys(), places, call.file, release)


def _settings(file: ConfigFile) -> Mapping[str, object]:
    try:
        found = written_options(file.text).get(OPTION)
    except NotYaml:
        return {}
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _names(names: Set[str], places: Mapping[str, Word], file: str, release: str) -> Iterator[Draft]:
    for name, gone in rule_data(FAMILY)["gone"].items():
        if name in names and in_range(release, gone["since"], ""):
            yield from drafts(release, RULE, places[name], file=file, name=name, instead=gone["instead"])


def _kind(kind: str, places: Mapping[str, Word], file: str, release: str) -> Iterator[Draft]:
    """A decoding_type that is none; capitals count."""
    known = rule_data(FAMILY)["types"]
    if not kind or kind in known:
        return
    close = next((one for one in known if one.lower() == kind.lower()), "")
    near = close or next(iter(get_close_matches(kind, known, 1, NEAR)), "")
    if near:
        place = places["decoding_type"]
        yield from drafts(release, RULE, place, form="kind", file=file, kind=kind, instead=near)


def _needs(kind: str, names: Set[str], place: Word, file: str, release: str) -> Iterator[Draft]:
    facts = rule_data(FAMILY)
    if kind in facts["needs_model"] and not names & set(facts["models"]):
        yield from drafts(release, RULE, place, form="needs", file=file, kind=kind, missing="speculative_model_dir")
    if kind in facts["needs_length"] and not names & set(facts["lengths"]):
        yield from drafts(release, RULE, place, form="needs", file=file, kind=kind, missing="max_draft_len")
