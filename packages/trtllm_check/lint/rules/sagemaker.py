"""What SageMaker refuses of an endpoint: names, times, variables, bodies; and what its instance cannot hold."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from serving_base.facts.published import published_model
from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.settings import Setting, key
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts, rule_data
from trtllm_check.lint.rules.served import AWS_VLLM, LMI, TENSORRT_LLM, ServedModel, served
from trtllm_check.lint.shell.words import Word

FAMILY = "sagemaker"
NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")
NAMES = ("endpointname", "endpointconfigname", "modelname", "variantname")
TO_BE_FILLED = re.compile(r"[<>{}\[\]*]|\b(?:your|enter|insert|replace|name of)\b", re.IGNORECASE)
NAMED = ("deploy", "create_endpoint_config", "create_endpoint", "create_model")
TIMES = (
    *("containerstartuphealthchecktimeoutinseconds", "containerstartuphealthchecktimeout"),
    *("modeldatadownloadtimeoutinseconds", "modeldatadownloadtimeout"),
)
SERVERLESS_MB = range(1024, 6145, 1024)
OPTIMIZES = re.compile(r"\.optimize\(|OverrideEnvironment")  # a job of SageMaker's, with an engine of its own
TRT_IMAGE = re.compile(r"djl-inference:[\w.-]*tensorrtllm")
VOLUMES = ("volumesizeingb", "volumesize")
DATA = ("modeldataurl", "modeldata")
ROLES = ("executionrolearn", "rolearn", "role")
NO_ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:(?:user|group|policy|instance-profile)/\S+|arn:aws[\w-]*:sts::\S+")
ENVIRONMENTS = ("environment", "env")
INSTANCE = re.compile(r"\bml\.(?P<family>[a-z]+\d\w*)\.(?P<size>\d*xlarge)\b")
TYPED = re.compile(r"ml\.(?P<family>[a-z0-9]+(?:-[a-z0-9]+)?)\.(?P<size>[a-z0-9]+)")
BARE = re.compile(r"(?:g|p|inf|trn|m|c|r|t)\d\w*\.\w*(?:large|medium)")
INVOKES = ("invoke_endpoint", "invoke_endpoint_with_response_stream")
LATER = re.compile(
    r"^[ \t]*(?P<table>\w+)\[[\"'](?P<name>[A-Z][A-Z0-9_]+)[\"']\][ \t]*=[ \t]*"
    r"(?P<value>True|False|\d+(?:\.\d+)?)[ \t]*(?:#|$)",
    re.MULTILINE,
)
SIZE = re.compile(r"(?<![\d.x])(?P<billions>\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
SMALLER = re.compile(
    r"awq|gptq|int[48]|fp[48]|bnb|[48]bit|w[48]a|gguf|quant|a\d+b|moe|x\d+b|gpt-oss|deepseek-(?:v3|r1$)", re.IGNORECASE
)
# What makes the weights of a container smaller, whatever the name of the model says.
QUANTIZED = re.compile(
    r"^(?![ \t]*#).*\b(?:HF_MODEL_|SM_VLLM_)?QUANTI(?:ZE|ZATION)\\?[\"']?\]?[ \t]*[:=](?!.*(?:[Ff]alse|[Nn]one))"
    r"|load_in_[48]bit|LOAD_IN_[48]BIT",
    re.MULTILINE,
)
# The folder of the container, the archive that is unpacked there, and archives that do not hold all weights.
MODEL_FOLDER = "/opt/ml/model"
ARCHIVE = re.compile(r"s3://(?:.*/)?(?P<name>[^/]+?)\.(?:tar\.gz|tgz)")
ARCHIVED = "model_data"
NOT_WHOLE = re.compile(r"lora|adapter|delta|config|code|propert", re.IGNORECASE)
BYTES = 2
ROOM = 0.97


NO_ADDRESS = re.compile(r"(?!https?://|s3://)(?:[\w~.-]*/)?[\w./-]+")  # a path, or a bucket without s3://
PLAIN_NAME = re.compile(r"[\w.-]+")


class GpuInstance(NamedTuple):
    """One instance type of the text."""

    name: str
    gpus: int
    memory: int
    bfloat16: bool
    fp8: bool


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for call in document.aws_calls:
        yield from _call(call, release)
    for file, text in document.texts if any(one.maker == "python" for one in document.aws_calls) else ():
        yield from _set_later(text, file, release)
    containers = [_unpacked(one, document) for one in served(document) if one.tool in (LMI, AWS_VLLM)]
    is_smaller = any(QUANTIZED.search(text) for _, text in document.texts)
    instances = _instances(document) if containers else []
    is_built = any(TRT_IMAGE.search(text) for _, text in document.texts)
    is_optimized = any(OPTIMIZES.search(text) for _, text in document.texts)
    for one in containers:
        if instances:
            yield from _fits(one, instances, release)
            yield from () if is_smaller else _weights(one, instances, release)
            if is_built or (one.engine == TENSORRT_LLM and not is_optimized):
                yield from _no_fp8(one, instances, release)


def _say(rule: str, form: str, setting: Setting, call: AwsCall, release: str, **known: Any) -> Iterator[Draft]:
    name = setting.written or setting.place.text
    yield from drafts(release, rule, setting.place, form=form, file=call.file, name=name, value=setting.text, **known)


def _call(call: AwsCall, release: str) -> Iterator[Draft]:
    for table in call.settings.tables():
        kind = table.get("instancetype")
        for name, setting in table.items:
            for form, known in _refused(name, setting, kind, call.name):
                yield from _say("sagemaker-refuses", form, setting, call, release, **known)
            for form, value in _variables(setting) if name in ENVIRONMENTS else ():
                yield from _say("sagemaker-refuses", form, value, call, release)
            for _, value in setting.items if name in ENVIRONMENTS and call.maker == "python" else ():
                if value.kind in ("number", "switch"):
                    yield from _say("sagemaker-refuses", "variable", value, call, release)
    body = call.settings.get("body") if call.name in INVOKES else None
    if body is not None and body.kind in ("table", "list"):
        yield from _say("sagemaker-refuses", "body", body, call, release)


def _set_later(text: str, file: str, release: str) -> Iterator[Draft]:
    """``env["OPTION_ENABLE_LORA"] = True`` of a dict that a model is given."""
    for match in LATER.finditer(text):
        handed = rf"\b(?:env|environment|Environment)\b[\"']?\s*[=:]\s*{match['table']}\b(?!\s*=)"
        of_lmi = rf"(?<![\w.]){match['table']}\s*=\s*\{{[^{{}}]*[\"'](?:OPTION_[A-Z_]+|HF_MODEL_ID|SM_NUM_GPUS)[\"']"
        if re.search(handed, text) or re.search(of_lmi, text):
            start = match.start("value")
            place = Word(match["value"], text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
            known: dict[str, Any] = {"name": match["name"], "value": match["value"]}
            yield from drafts(release, "sagemaker-refuses", place, form="variable", file=file, **known)


def _refused(name: str, setting: Setting, kind: Setting | None, call: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The form of each finding on one setting, and what its text wants; ``kind``: the instance beside it."""
    text = setting.text
    limits = rule_data(FAMILY)["seconds"]
    if setting.kind == "number":
        if name in TIMES and not limits["least"] <= float(text) <= limits["most"]:
            yield "seconds", limits
        if name == "memorysizeinmb" and float(text) not in SERVERLESS_MB:
            yield "serverless", {"sizes": ", ".join(map(str, SERVERLESS_MB))}
        if name == "maxconcurrency" and not 1 <= float(text) <= limits["concurrency"]:
            yield "concurrency", {"most": limits["concurrency"]}
        match = INSTANCE.fullmatch(kind.text) if name in VOLUMES and kind is not None else None
        if match and match["family"] in rule_data(FAMILY)["own_disks"]:
            yield "volume", {"instance": match[0]}
        least, most = _ranges().get(name, (None, None))
        if (least is not None and float(text) < least) or (most is not None and float(text) > most):
            yield "range", {"range": f"at least {least}" if most is None else f"{least} to {most}"}
    if setting.kind == "text":
        if name in _addresses() and NO_ADDRESS.fullmatch(text) and not TO_BE_FILLED.search(text):
            yield "address", {}
        if name in NAMES and call in NAMED and not NAME.fullmatch(text) and not TO_BE_FILLED.search(text):
            yield "name", {"right": fitting_name(text)}
        if name in ROLES and NO_ROLE.fullmatch(text):
            yield "role", {}
        if name == "instancetype" and BARE.fullmatch(text):
            yield "instance", {}
        if name == "instancetype" and (known := _unknown_instance(text)):
            yield "no instance", known
        if name in DATA and text.startswith("s3://") and not text.endswith((".gz", ".tgz")):
            yield "archive", {}


@cache
def _ranges() -> Mapping[str, tuple[float | None, float | None]]:
    return {key(name): (least, most) for name, (least, most) in rule_data(FAMILY)["ranges"].items()}


@cache
def _addresses() -> frozenset[str]:
    return frozenset(map(key, rule_data(FAMILY)["addresses"]))


def _variables(table: Setting) -> Iterator[tuple[str, Setting]]:
    """Variables whose names or values the service does not take; ``name=...`` of a call's own is none."""
    limits = rule_data(FAMILY)["environment"]
    for _, value in table.items:
        written = value.written
        if PLAIN_NAME.fullmatch(written) and not re.fullmatch(limits["name"], written):
            yield "variable name", value
        elif value.kind == "text" and len(value.text) > limits["longest"]:
            yield "variable length", value


def _unknown_instance(text: str) -> dict[str, Any]:
    """What to say of an instance type that endpoints do not have; empty for one that they have and for no instance."""
    match = TYPED.fullmatch(text)
    sizes = rule_data(FAMILY)["sizes"]
    if match is None or match["size"] in sizes.get(match["family"], "").split():
        return {}
    has = sizes.get(match["family"])
    names = (
        ", ".join(f"ml.{match['family']}.{size}" for size in has.split()) if has else "an instance of G5, G6, P4 or P5"
    )
    return {"right": names}


def fitting_name(text: str) -> str:
    """``text`` as SageMaker takes it for a name."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^a-zA-Z0-9]+", "-", text)).strip("-")[:63]


def _instances(document: Document) -> list[GpuInstance]:
    """The instances with GPUs that the text names; none if it names another kind, too."""
    found: list[GpuInstance] = []
    for _, text in document.texts:
        for match in INSTANCE.finditer(text):
            family = rule_data(FAMILY)["gpus"].get(match["family"])
            if family is None or match["size"] not in family["sizes"]:
                return []
            sizes, memory = family["sizes"], family["memory"]
            has = [family.get(kind, True) for kind in ("bfloat16", "fp8")]
            found.append(GpuInstance(match[0], sizes[match["size"]], memory, *has))
    return found


def _fits(one: ServedModel, instances: list[GpuInstance], release: str) -> Iterator[Draft]:
    """The ranks, the type and the weights of a container against the largest instance of the text."""
    best = max(instances, key=lambda each: (each.gpus, each.memory))
    if one.ranks > best.gpus:
        yield from drafts(
            release,
            "gpus-fewer-than-ranks",
            one.place("tensor_parallel_size"),
            file=one.file,
            tool=one.tool,
            ranks=one.ranks,
            seen=best.gpus,
            how=f"{best.name} has",
            line=one.place("tensor_parallel_size").line,
        )
    dtype = one.options.get("dtype")
    if dtype is not None and dtype.text in ("bf16", "bfloat16") and not any(each.bfloat16 for each in instances):
        yield from drafts(release, "instance-without-bfloat16", dtype, file=one.file, instance=best.name)


def _no_fp8(one: ServedModel, instances: list[GpuInstance], release: str) -> Iterator[Draft]:
    """FP8 by TensorRT-LLM on GPUs that have none."""
    asked = one.options.get("quantization")
    if asked is not None and asked.text == "fp8" and not any(each.fp8 for each in instances):
        yield from drafts(release, "instance-without-fp8", asked, file=one.file, instance=instances[0].name)


def _unpacked(one: ServedModel, document: Document) -> ServedModel:
    """A model that lies in the endpoint's archive under the archive's name, where that tells its size."""
    if one.model.rstrip("/") != MODEL_FOLDER:
        return one
    found = [
        (setting, match["name"])
        for call in document.aws_calls
        for table in call.settings.tables()
        for name, setting in table.items
        if name in DATA and setting.kind == "text" and (match := ARCHIVE.fullmatch(setting.text))
    ]
    if len(found) != 1 or NOT_WHOLE.search(found[0][1]):
        return one
    (setting, name) = found[0]
    place = Word(name, setting.place.line, setting.place.column)
    return one._replace(model=name, options={**one.options, "model": place}, flags={**one.flags, "model": ARCHIVED})


def _weights(one: ServedModel, instances: list[GpuInstance], release: str) -> Iterator[Draft]:
    """The weights of a model in 16 bits, by the size in its name; of a published one in the bits that it has."""
    sizes, known_model = SIZE.findall(one.model.rpartition("/")[2]), published_model(one.model)
    if known_model is not None and known_model.official and known_model.billions and known_model.bits < 16:
        need, bits = known_model.billions * known_model.bits / 8, known_model.bits
    elif len(sizes) != 1 or SMALLER.search(one.model) or "quantization" in one.options:
        return
    else:
        need, bits = float(sizes[0]) * BYTES, 8 * BYTES
    is_passed_on = (
        one.flags.get("tensor_parallel_size", "").lower().endswith("tensor_parallel_size")
    )  # past LMI, perhaps
    ranks = None if is_passed_on else one.number("tensor_parallel_size")
    have = max((ranks if ranks and ranks < each.gpus else each.gpus) * each.memory for each in instances)
    if need > have * ROOM:
        place: Word = one.place("model")
        largest = max(instances, key=lambda each: each.gpus * each.memory)
        known: dict[str, Any] = {"model": one.model, "need": need, "have": have, "instance": largest.name, "bits": bits}
        of_archive = one.flags.get("model") == ARCHIVED  # whose name may leave out that it is quantized
        for draft in drafts(release, "weights-do-not-fit", place, form="instance", file=one.file, **known):
            yield draft._replace(severity="warning") if of_archive else draft
