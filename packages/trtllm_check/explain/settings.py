"""What `playbook explain` says of names that are no flags: parameters of config.pbtxt, options of LMI, old names."""

import re
from itertools import groupby

from trtllm_check.explain.layout import Rows, part
from trtllm_check.releases import Release
from trtllm_check.releases.backend import BackendParameter, backend_reads, parameter_releases
from trtllm_check.releases.guide import earlier_names
from trtllm_check.releases.history import ranges
from trtllm_check.releases.lmi import LmiImage, lmi_facts
from trtllm_check.releases.templates import VARIABLE, release_templates, template_releases
from trtllm_check.serving_properties import environment_settings

OPTION = "option."  # of LMI's serving.properties


def option_name(name: str) -> str:
    """The key of serving.properties that ``name`` stands for: ``OPTION_X`` and ``HF_MODEL_ID`` are variables of LMI."""
    return next(iter(environment_settings({name: ""})), name) if name.isupper() else OPTION + name.removeprefix(OPTION)


def about_parameter(name: str, release: Release | None) -> list[str]:
    """The parameter ``name`` of the engine's config.pbtxt, if some release's backend reads it."""
    releases = parameter_releases(name)
    if not releases:
        return []
    rows: Rows = []
    if release:
        reads = backend_reads(release.name)
        found = reads.parameters.get(name) if reads else None
        rows.append((f"in {release.name}", _told(found) if found else "the backend does not read it"))
    else:
        told: dict[str, list[str]] = {}
        for one in releases:
            if reads := backend_reads(one):
                told.setdefault(_told(reads.parameters[name]), []).append(one)
        rows += [("history", f"{ranges(names)}: {text}") for text, names in told.items()]
    rows.append(("filled by", _filled_by(name)))
    reads = backend_reads(releases[-1])
    rows.append(("source", reads.source if reads else ""))
    return [part(f"{name}, a parameter of the engine's model in config.pbtxt (backend tensorrtllm)", rows)]


def _told(parameter: BackendParameter) -> str:
    takes = " | ".join(parameter.values) or {"bool": "true or false", "list": "numbers with commas"}.get(
        parameter.type, f"a {parameter.type}"
    )
    if parameter.required:
        return f"takes {takes}; required: without it the model stops with {parameter.required}"
    return f"takes {takes}" + (f"; default {parameter.default}" if parameter.default else "")


def _filled_by(name: str) -> str:
    """The variables of the templates that stand for the parameter."""
    values = (release_templates(one).models["tensorrt_llm"].parameters.get(name, "") for one in template_releases())
    variables = dict.fromkeys(variable for value in values for variable in VARIABLE.findall(value))
    return f"{', '.join(variables)} (fill_template.py)" if variables else "hand: the templates do not have it"


def about_option(name: str, release: Release | None) -> list[str]:
    """The option ``name`` of LMI's serving.properties, image by image, if some image's facts name it."""
    facts = lmi_facts()
    argument = name.removeprefix(OPTION)
    if not any(name in family.keys for family in facts.families.values()) and argument not in facts.engine_args.fields:
        return []
    images = [image for image in facts.images if release is None or image.engine_release in ("", release.name)]
    runs = groupby(sorted(images, key=_place), key=lambda image: _option(name, image))
    return [part(f"{name} of serving.properties, by LMI image", [(_labels(list(run)), text) for text, run in runs])]


def _place(image: LmiImage) -> tuple[bool, bool, tuple[int, ...]]:
    """DeepSpeed's images first, then those of TensorRT-LLM, then the others, each by version."""
    version = tuple(map(int, re.findall(r"\d+", image.tag)))
    return "deepspeed" not in image.tag, not image.engine_release, version


def _labels(images: list[LmiImage]) -> str:
    """The first and the last image of those that do the same."""
    names = [re.sub(r"\.0\.0$|-tensorrtllm.*", "", image.tag.partition("-cu")[0]) for image in images]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _option(name: str, image: LmiImage) -> str:
    """What an image does with an option: its facts' own words."""
    family = lmi_facts().family(image)
    inside = image.inside
    key = family.keys.get(name)
    if key is None and family.passed_on and name.removeprefix(OPTION) in family.passed_on.names:
        return f"({inside}) handed on to the engine as it is"
    if key is None:
        return f"({inside}) {family.unknown.reading}; {family.unknown.why}; {family.unknown.fix}"
    values = f", {' | '.join(key.values)}" if key.values else f", {key.kind}" if key.kind else ""
    return f"({inside}) {'; '.join(text for text in (key.reading + values, key.note, key.why, key.fix) if text)}"


def about_earlier(name: str) -> list[str]:
    """A name of the time before 0.8.0, if it is one."""
    found = earlier_names().get(name)
    if found is None:
        return []
    rows: Rows = [
        ("history", "gone since 0.8.0, when convert_checkpoint.py and trtllm-build took the place of build.py"),
        ("instead", found.now),
        ("source", found.source),
    ]
    return [part(f"--{name} of examples/llama/build.py, to 0.7.1", rows)]
