"""Calls of SageMaker against the fields that they take, and those that do not go together."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from serving_base.yaml_files import read_yaml
from trtllm_check.lint.carriers.aws_calls import AwsCall
from trtllm_check.lint.carriers.aws_cli import option_name
from trtllm_check.lint.carriers.schema import HERE, Misfit, Schema, read_types
from trtllm_check.lint.carriers.settings import Setting, key
from trtllm_check.lint.document import Document
from trtllm_check.lint.finding import Draft, Platform, drafts

FILE = "sagemaker.yml"
# What CloudFormation has and no call: docs.aws.amazon.com AWS::SageMaker::Endpoint.
TEMPLATES_OWN = frozenset({"ExcludeRetainedVariantProperties", "RetainAllVariantProperties", "RetainDeploymentConfig"})
TEMPLATES_FORMS = ("unknown", "near", "above", "below")
TEMPLATES_SAID = (*TEMPLATES_FORMS, "choice")
OPTION = "option"
UNKNOWN_OPTION = "option unknown"
ENVIRONMENTS = ("environment", "env")
VARIANTS = ("productionvariants", "shadowproductionvariants")


def check(document: Document, platform: Platform) -> Iterator[Draft]:
    """All drafts of the family."""
    release = platform.release.name
    for call in document.aws_calls:
        if call.maker != "terraform":
            yield from _fields(call, release)
        yield from _variants(call, release)
        yield from _settings_as_variables(call, release)
        yield from _data(call, release)


def _fields(call: AwsCall, release: str) -> Iterator[Draft]:
    kind = _calls().get(call.name, "")
    schema = Schema(read_types(FILE))
    if not kind or not any(value.written in schema.types[kind].fields for _, value in call.settings.items):
        return  # a function of another library
    for problem in schema.problems(call.settings, kind):
        if not _is_left(problem, call):
            known: dict[str, Any] = dict(problem.known)
            known["call"] = call.name
            field = known.get("field", "")
            known["field"] = call.name if field == "it" else field
            form = _form(problem, call)
            if form.startswith(OPTION):
                known["option"] = option_name(known["name"]) if form != UNKNOWN_OPTION else known["name"]
                known["command"] = call.name.replace("_", "-")
            yield from drafts(release, "sagemaker-call", problem.setting.place, form=form, file=call.file, **known)


def _form(problem: Misfit, call: AwsCall) -> str:
    """The CLI says in words of its own what is wrong with its options, and boto3's of what is in them."""
    if call.maker == "template":
        return f"template {problem.form}"
    if call.maker == "cli" and problem.setting is call.settings:
        return "option lacking"
    is_option = any(problem.setting is value for _, value in call.settings.items)
    return UNKNOWN_OPTION if call.maker == "cli" and is_option and problem.form in TEMPLATES_FORMS else problem.form


def _is_left(problem: Misfit, call: AwsCall) -> bool:
    """What other rules say, and what a template may have."""
    if call.maker == "cli" and problem.form == "kind" and problem.setting.kind == "number":
        return True  # shorthand is made a text where the service wants one
    if call.maker == "template":
        return problem.form not in TEMPLATES_SAID or problem.setting.written in TEMPLATES_OWN
    field = dict(problem.known).get("field", "")
    return problem.form == "kind" and (field.startswith("Environment") or ".Environment." in field)


def _variants(call: AwsCall, release: str) -> Iterator[Draft]:
    """A variant without machines, and one with two kinds of them."""
    for name, setting in call.settings.items:
        for one in setting.parts or (setting,) if name in VARIANTS else ():
            if one.kind != "table" or one.get("<<") is not None or call.name != "create_endpoint_config":
                continue
            serverless, machine = one.get("serverlessconfig"), one.get("instancetype")
            if serverless is not None and machine is not None:
                yield from drafts(release, "sagemaker-call", machine.place, form="both", file=call.file)
            elif serverless is None and machine is None and _is_told(one):
                yield from drafts(release, "sagemaker-call", one.place, form="no machine", file=call.file)
            yield from _together(call, setting, one, release)


def _together(call: AwsCall, variants: Setting, one: Setting, release: str) -> Iterator[Draft]:
    """What a variant, or a configuration, may not have beside the one that it has."""
    scaling, serverless = one.get("managedinstancescaling"), one.get("serverlessconfig")
    if scaling is not None and scaling.kind == "table" and one.get("modelname") is not None:
        yield from drafts(release, "sagemaker-call", scaling.place, form="managed scaling", file=call.file)
    if serverless is None or serverless.kind != "table":
        return
    capture = call.settings.get("datacaptureconfig")
    if capture is not None and capture.kind == "table":
        yield from drafts(release, "sagemaker-call", capture.place, form="serverless capture", file=call.file)
    if len(variants.parts) > 1:
        known: dict[str, Any] = {"count": len(variants.parts)}
        yield from drafts(release, "sagemaker-call", one.place, form="serverless variants", file=call.file, **known)


def _is_told(variant: Setting) -> bool:
    """True for a variant whose machines stand nowhere else."""
    return variant.get("instancepools", "dynamic") is None and variant.get("variantname") is not None


def _settings_as_variables(call: AwsCall, release: str) -> Iterator[Draft]:
    """``container_startup_health_check_timeout`` among the container's variables."""
    names = {key(name): name for name in read_types(FILE)["ProductionVariant"].fields}
    for table in call.settings.tables():
        for name, value in table.items:
            for inside, one in value.items if name in ENVIRONMENTS else ():
                meant = names.get(inside) or names.get(f"{inside}inseconds")
                if meant is not None and len(inside) > len("instancetype"):
                    known: dict[str, Any] = {"name": one.written, "right": meant}
                    yield from drafts(release, "sagemaker-call", one.place, form="variable", file=call.file, **known)


def _data(call: AwsCall, release: str) -> Iterator[Draft]:
    """Two places of a model, and a folder that does not end as one."""
    for table in call.settings.tables():
        url, source = table.get("modeldataurl"), table.get("modeldatasource")
        if url is not None and source is not None and "open" not in (url.kind, source.kind):
            yield from drafts(release, "sagemaker-call", url.place, form="two places", file=call.file)
        where, kind = table.get("s3uri"), table.get("s3datatype")
        if where is None or kind is None or where.kind != "text" or not where.text.startswith("s3://"):
            continue
        if kind.text == "S3Prefix" and not where.text.endswith("/") and not _is_archive(where):
            yield from drafts(release, "sagemaker-call", where.place, form="prefix", file=call.file, value=where.text)
        compression = table.get("compressiontype")
        if compression is not None and (compression.text, kind.text) == ("Gzip", "S3Prefix"):
            yield from drafts(release, "sagemaker-call", compression.place, form="gzip", file=call.file)


def _is_archive(where: Setting) -> bool:
    return where.text.endswith((".gz", ".tgz", ".tar"))


@cache
def _calls() -> dict[str, str]:
    content: dict[str, str] = read_yaml(HERE / FILE)["calls"]
    return content
