from pathlib import Path
from typing import Any

import pytest
import yaml

from playbook import plan
from playbook.profile import PROFILES_DIR, load_profile, profile_names
from serving_base.errors import ProfileError, UsageError


def altered(tmp_path: Path, **settings: Any) -> str:
    values = yaml.safe_load((PROFILES_DIR / "p5.yml").read_text())
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump({**values, **settings}))
    return str(path)


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_load(name: str) -> None:
    assert load_profile(name).name == name


def test_shipped_profiles_are_the_three() -> None:
    assert {"local", "p5", "p5-8b"} <= set(profile_names())


def test_users_own_file_works_the_same(tmp_path: Path) -> None:
    profile = load_profile(altered(tmp_path, name="mine", tp=4, max_batch_size=7))
    assert (profile.name, profile.tp, profile.max_batch_size, profile.world_size) == ("mine", 4, 7, 4)


def test_release_overrides_the_file() -> None:
    assert load_profile("p5").release == "0.12.0"
    assert load_profile("p5", "1.2.1").release == "1.2.1"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tpp": 8}, "unknown key 'tpp', did you mean 'tp'?"),
        ({"tp": 3}, "tp 3 does not divide the 64 attention heads"),
        ({"tp": 16}, "needs 16 GPUs and the machine has 8"),
        ({"tp": 8, "pp": 2}, "needs 16 GPUs and the machine has 8"),
        ({"pp": 3, "tp": 1}, "pp 3 does not divide the 80 layers"),
        ({"gpu": "a100-sxm-80gb"}, "has no FP8 units"),
        ({"gpu": "h1000"}, "gpu 'h1000' is unknown"),
        ({"tp": 1, "qformat": "full_prec", "kv_cache_dtype": "auto"}, "raise tp or pp"),
        ({"max_input_len": 4096}, "leaves no room for an answer"),
        ({"max_seq_len": 9000}, "above the 8192 positions"),
        ({"qformat": "fp9"}, "qformat"),
        ({"model": "llama-4"}, "unknown model 'llama-4'"),
        ({"kv_cache_free_gpu_mem_fraction": 1.5}, "kv_cache_free_gpu_mem_fraction"),
    ],
)
def test_impossible_profiles_are_refused_with_the_reason(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as error:
        load_profile(altered(tmp_path, **settings))
    assert reason in str(error.value)
    assert error.value.fix


def test_unknown_profile_names_the_known() -> None:
    with pytest.raises(ProfileError, match="no profile 'p6'") as error:
        load_profile("p6")
    assert "p5-8b" in error.value.fix


@pytest.mark.parametrize("text", ["", "[1, 2]", "name: [", "just words"])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(text)
    with pytest.raises(ProfileError):
        load_profile(str(path))


@pytest.mark.parametrize("name", profile_names())
def test_the_benchmark_passes_the_engines_slots_and_fits_its_limits(name: str) -> None:
    """Only a sweep with more streams than slots can show where more load buys nothing."""
    profile = load_profile(name)
    wanted = profile.benchmark
    assert list(wanted.concurrency) == sorted(set(wanted.concurrency))
    assert max(wanted.concurrency) >= 2 * profile.max_batch_size
    assert wanted.isl[1] <= profile.max_input_len
    assert wanted.isl[1] + wanted.osl[1] <= profile.max_seq_len


@pytest.mark.parametrize("name", ["p5", "p5-8b"])
def test_a_p5_gets_a_load_worth_its_price(name: str) -> None:
    """Minutes, not seconds, and no more than a cheap lunch."""
    profile = load_profile(name)
    wanted = profile.benchmark
    seconds = 0.0
    for streams in wanted.concurrency:
        point: dict[str, Any] = {**wanted.case, "concurrency": streams, "requests": wanted.requests(streams)}
        seconds += wanted.requests(streams) / plan.plan(plan.case_of(profile, **point)).requests_per_s
    assert 60 < seconds < 900
    assert wanted.rate_seconds >= 60


def test_a_benchmarks_settings_are_overridden_one_by_one() -> None:
    wanted = load_profile("p5").benchmark
    assert wanted.changed(concurrency=[], isl=[], rate_seconds=0.0) == wanted
    changed = wanted.changed(concurrency=[1, 2], isl=[8, 16])
    assert (changed.concurrency, changed.isl, changed.osl) == ((1, 2), (8, 16), wanted.osl)
    assert (changed.requests(1), changed.requests(100)) == (16, 100 * wanted.requests_per_stream)
    with pytest.raises(ProfileError, match="concurrency"):
        wanted.changed(concurrency=[0])
