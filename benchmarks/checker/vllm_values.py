"""Write ``packages/trtllm_check/releases/data/vllm/values.yml``: values that vLLM takes by name, release by release.

Of options whose kind is a text because plugins may add to them, and of variables of the environment that take one of
a few words. The archives are those of ``vllm_tables.py``; none of their code is run::

    python benchmarks/checker/vllm_values.py FOLDER
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

from benchmarks.checker.vllm_sources import Source, archives
from benchmarks.checker.vllm_tables import DATA, HAS, Table, written

WHAT = "Values by name: of options that plugins may add to, and of variables of the environment."
OPTIONS = {  # option -> where its names may stand, the newest first
    "quantization": ("QuantizationMethods", "QUANTIZATION_METHODS"),
    "load_format": ("LoadFormats", "LoadFormat"),
    "tokenizer_mode": ("_VLLM_TOKENIZERS", "TokenizerMode"),
    "attention_backend": ("AttentionBackendEnum", "_Backend"),
    "kv_cache_dtype": ("CacheDType",),
}
ALWAYS = {"tokenizer_mode": ("auto",), "load_format": ("auto",)}
ENVS = "vllm/envs.py"
CHOOSES = ("env_with_choices", "env_list_with_choices", "env_set_with_choices")


def values(source: Source) -> dict[str, set[str]]:
    """Option or variable -> the values that the release names."""
    found: dict[str, set[str]] = {}
    for option, homes in OPTIONS.items():
        for home in homes:
            if names := set(_names(source, home)):
                found[option] = names | set(ALWAYS.get(option, ()))
                break
    return found | dict(_variables(source))


def _names(source: Source, home: str) -> Iterator[str]:
    """The texts of a Literal, a list or a dictionary, and the members of an Enum."""
    value = source.value_of(home)
    if isinstance(value, ast.Dict):
        yield from (one.value for one in value.keys if isinstance(one, ast.Constant) and isinstance(one.value, str))
    elif isinstance(value, ast.List | ast.Subscript):
        yield from (
            one.value for one in ast.walk(value) if isinstance(one, ast.Constant) and isinstance(one.value, str)
        )
    found = source.class_of(home)
    for node in found[0].body if found else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            named = home == "LoadFormat" and is_text
            yield str(ast.literal_eval(node.value)) if named else node.targets[0].id


def _variables(source: Source) -> Iterator[tuple[str, set[str]]]:
    for node in ast.walk(source.tree(ENVS)) if ENVS in source.texts else ():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHOOSES):
            continue
        name, choices = node.args[0], node.args[2] if len(node.args) > 2 else None
        if isinstance(name, ast.Constant) and str(name.value).startswith("VLLM_") and isinstance(choices, ast.List):
            found = {str(one.value) for one in choices.elts if isinstance(one, ast.Constant)}
            if not any(value.isdecimal() for value in found):
                yield str(name.value), found


def main() -> None:
    """Read all archives and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    tables: dict[str, Table] = {}
    releases = archives(parser.parse_args().folder)
    for version, path in releases.items():
        for section, names in values(Source(path)).items():
            tables.setdefault(section, Table()).seen[str(version)] = dict.fromkeys(names, HAS)
    known = [str(version) for version in releases]
    for table in tables.values():
        table.releases = known
        before: dict[str, str] = {}
        for release in known:  # an archive may lack the module: what it had before stays
            before = table.seen.setdefault(release, before) or before
    told = {section: tables[section].changes() for section in sorted(tables)}
    (DATA / "values.yml").write_text(written(WHAT, told))


if __name__ == "__main__":
    main()
