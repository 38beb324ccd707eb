import subprocess
import sys
from typing import Any

import pytest

from each import each
from playbook.planning import case_of
from playbook.profile import load_profile, profile_names
from serving_base.errors import UsageError
from serving_base.facts.models import model_name, model_shape, variant, variants
from serving_planner.case import Case, changed, parse_case
from serving_planner.hardware import local_machine
from trtllm_check.deployment import THIS_MACHINE

BASE = {"model": "llama3-70b", "gpu": "h100-sxm", "isl": 1024, "osl": 256}


def case(**settings: Any) -> Case:
    return parse_case({**BASE, **settings})


def refusal(**settings: Any) -> UsageError:
    with pytest.raises(UsageError) as error:
        case(**settings)
    assert error.value.why and error.value.fix
    return error.value


def test_defaults_are_one_fp8_replica() -> None:
    plain = case(tp=4, pp=2)
    assert (plain.gpu_count, plain.replicas, plain.weights, plain.kv, plain.engine) == (
        8,
        1,
        "fp8",
        "fp8",
        "tensorrt-llm",
    )
    assert case(gpus=8, tp=2).replicas == 4
    assert case().shape == model_shape("llama-3-70b-instruct")


@pytest.mark.parametrize(
    ("settings", "what", "fix"),
    [
        ({"model": "llama4-70b"}, "unknown model 'llama4-70b'", "use llama3-70b"),
        ({"gpu": "h101"}, "unknown gpu 'h101'", "use h100-sxm"),
        ({"gpu": "b200"}, "unknown gpu 'b200'", "use h200"),
        ({"engine": "trt"}, "unknown engine 'trt'", "use tensorrt-llm"),
        ({"weights": "int8"}, "unknown precision 'int8'", "use fp8"),
        ({"tp": 3}, "tp 3 does not divide the 64 attention heads", "use tp 2"),
        ({"tp": 7}, "tp 7 does not divide the 64 attention heads", "use tp 8"),
        ({"pp": 3}, "pp 3 does not divide the 80 layers", "use pp 2"),
        ({"gpus": 6, "tp": 4}, "gpus 6 is not a multiple of tp 4 x pp 1 = 4", "use gpus 8, or tp 2 and pp 1"),
        ({"gpus": 2, "tp": 4}, "gpus 2 is not a multiple", "use gpus 4, or tp 2 and pp 1"),
        ({"gpu": "a100-sxm"}, "a100-sxm cannot run weights fp8 with kv fp8", "use weights bf16 and kv bf16"),
        (
            {"gpu": "a100-sxm", "weights": "bf16"},
            "a100-sxm cannot run weights bf16 with kv fp8",
            "one of h100-sxm, h200",
        ),
        ({"concurrency": 8, "rate": 2.0}, "concurrency 8 and rate 2.0 are both given", "leave one out"),
        ({"concurrency": 0}, "concurrency=0 is refused", "requests in flight"),
        ({"concurrency": "most"}, "concurrency='most' is refused", "max: what the memory holds"),
        ({"rate": 0}, "rate=0 is refused", "requests/s"),
        ({"rate": float("nan")}, "rate=nan is refused", "requests/s"),
        ({"isl": 0}, "isl=0 is refused", "prompt tokens"),
        ({"osl": None}, "osl is missing", "give osl"),
        ({"islands": 3}, "unknown key 'islands'", "did you mean 'isl'"),
        ({"kv_fraction": 1.5}, "kv_fraction=1.5 is refused", "0.9 is the default"),
        ({"length_ratio": 0}, "length_ratio=0 is refused", "nominal"),
        ({"isl": 131000}, "isl 131000 + osl 256 is above the 131072 positions", "use isl 130816"),
        ({"model": "llama2-70b", "isl": 4000}, "above the 4096 positions of llama2-70b", "use isl 3840, or llama3-70b"),
        ({"model": "tiny", "isl": 9000, "osl": 9000}, "above the 2048 positions of tiny", "use isl 1024 and osl 1024"),
        ({"isl": 9000, "chunked": False}, "isl 9000 does not fit a step of max_num_tokens 8192", "max_num_tokens 9000"),
        ({"instance": "p6.48xlarge"}, "unknown instance 'p6.48xlarge'", "use p5.48xlarge"),
        ({"instance": "p5en.48xlarge"}, "p5en.48xlarge has h200, not h100-sxm", "use h200"),
        ({"instance": "p5.4xlarge", "tp": 2}, "2 GPUs are more than the 1 of p5.4xlarge", "use gpus 1"),
    ],
)
def test_bad_input_is_refused_with_the_nearest_that_fits(settings: dict[str, Any], what: str, fix: str) -> None:
    error = refusal(**settings)
    assert what in error.what
    assert fix in error.fix


@pytest.mark.parametrize(
    "settings",
    [
        {"tp": 8},
        {"pp": 5},
        {"gpus": 8, "tp": 2, "pp": 2},
        {"gpu": "a100-sxm", "weights": "bf16", "kv": "bf16"},
        {"concurrency": "max"},
        {"rate": 2.5},
        {"isl": 130816},
        {"isl": 8192, "chunked": False},
        {"instance": "p5.48xlarge", "gpus": 8, "tp": 8},
        {"weights": "BF16", "kv": "auto", "engine": "TRT-LLM"},
    ],
)
def test_what_the_rules_must_let_through(settings: dict[str, Any]) -> None:
    assert case(**settings).isl >= 1


def test_both_loads_are_refused_and_each_alone_is_not() -> None:
    assert case(rate=1.0).concurrency is None
    assert case(concurrency=4).rate is None


def test_other_ways_to_write_it() -> None:
    loose = parse_case(
        {"model": "meta-llama/Llama-3.1-70B-Instruct", "gpu": "H100", "isl": "128", "osl": 2.0, "weights": "float16"}
    )
    assert (loose.model, loose.gpu, loose.isl, loose.weights) == ("llama3.1-70b", "h100-sxm", 128, "bf16")
    assert parse_case({"model": "llama3-8b", "instance": "ml.g6.12xlarge", "isl": 1, "osl": 1}).gpu == "l4"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama-3-8b-instruct", "llama3-8b"),
        ("Llama3-8B", "llama3-8b"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama3.3-70b"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama2-70b"),
        ("tiny", "tiny"),
    ],
)
def test_model_names(text: str, name: str) -> None:
    assert model_name(text) == name
    assert variant(text).name == name


def test_every_variant_has_a_shape_and_a_source() -> None:
    for known in variants().values():
        assert known.source
        assert 0 < known.trained <= known.positions
    assert variants()["llama2-70b"].shape.parameters == 68_976_648_192
    assert variants()["llama3-8b"].shape is not variants()["llama3-70b"].shape


def test_lengths_beyond_the_training_warn_and_do_not_refuse() -> None:
    (warning,) = case(isl=8000, osl=1000).warnings
    assert "8192 positions that llama3-70b was trained on" in warning
    assert case(isl=8000, osl=1000, model="llama3.1-70b").warnings == ()
    assert case(isl=7192, osl=1000).warnings == ()


def test_warnings_of_idle_replicas_and_of_several_machines() -> None:
    assert "6 replicas idle" in case(gpus=8, concurrency=2).warnings[0]
    assert case(gpus=8, concurrency=8).warnings == ()
    assert "spans several machines" in case(tp=8, pp=2).warnings[0]
    assert case(tp=4, pp=2).warnings == ()


def test_changed_is_checked_again() -> None:
    assert changed(case(), tp=8).tp == 8
    with pytest.raises(UsageError, match="tp 5"):
        changed(case(), tp=5)


def test_a_case_cannot_be_altered() -> None:
    with pytest.raises(ValueError, match="frozen"):
        case().tp = 2


@pytest.mark.parametrize("given", [None, [], "llama3-70b", 3])
def test_what_is_no_object_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="is no case"):
        parse_case(given)


@pytest.mark.parametrize("name", [name for name in profile_names() if load_profile(name).on_gpus])
def test_a_profile_gives_the_case_of_its_engine(name: str) -> None:
    profile = load_profile(name)
    planned = case_of(profile, isl=512, osl=128, concurrency=4)
    assert planned.shape == profile.shape
    assert (planned.tp, planned.pp, planned.gpu_count, planned.replicas) == (
        profile.tp,
        profile.pp,
        profile.world_size,
        1,
    )
    assert planned.max_batch_size == profile.max_batch_size
    assert planned.kv_fraction == profile.kv_cache_free_gpu_mem_fraction
    assert planned.instance == (None if profile.instance == THIS_MACHINE else profile.instance)


def test_a_profile_of_this_machine_needs_its_measurement() -> None:
    profile = load_profile("local")
    with pytest.raises(UsageError, match="gpu is missing"):
        case_of(profile, isl=64, osl=16)
    local_machine(20e9, 200e9, 4 * 2**30, "test machine")
    assert case_of(profile, isl=64, osl=16, gpu="test machine").hardware.measured


def test_what_a_profile_cannot_give_is_refused() -> None:
    profile = load_profile("p5")
    with pytest.raises(UsageError, match="beyond profile p5"):
        case_of(profile, isl=4000, osl=200)
    int8 = profile.model_copy(update={"qformat": "int8_sq"})
    with pytest.raises(UsageError, match="qformat int8_sq of profile p5 cannot be planned"):
        case_of(int8, isl=64, osl=16)
    assert case_of(int8, isl=64, osl=16, weights="fp8").weights == "fp8"
    bf16 = profile.model_copy(update={"qformat": "full_prec", "kv_cache_dtype": "auto"})
    assert (case_of(bf16, isl=64, osl=16).weights, case_of(bf16, isl=64, osl=16).kv) == ("bf16", "bf16")


@each("value", [0, -1, 3.5, "x", True, [], {}, float("inf"), 10**9, "", b"x"])
@each("key", [*Case.model_fields, "other"])
def test_whatever_is_written_is_a_case_or_is_refused(key: str, value: Any) -> None:
    refused = None
    try:
        assert case(**{key: value}).gpu_count >= 1
    except UsageError as error:
        refused = error
    assert refused is None or (refused.what and refused.fix)


def test_importing_the_planner_costs_nothing() -> None:
    """Next to pydantic: itself alone, its parts and libraries when they are used."""
    code = "import sys, pydantic; before = set(sys.modules); import serving_planner; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {"serving_planner"}
