"""The bench with modelopt in it: real formats on few windows of the tiny model."""

from collections.abc import Sequence

import pytest

from course_exercises.exercise import checked, exercise
from ptq.laboratory import VARIANTS, Laboratory, find, linear_layers, open_laboratory, quantizers, round_nvfp4
from ptq.metrics import bootstrap, paired_ratio
from serving_base.errors import UsageError

CHEAP = [name for name, variant in VARIANTS.items() if variant.share == 1]
GOOD_TEXTS = 4
Texts = Sequence[Sequence[int]]


@pytest.fixture(scope="module")
def bench() -> Laboratory:
    return open_laboratory(windows=4, calib_samples=GOOD_TEXTS)


def test_the_reference_is_no_distance_from_itself(bench: Laboratory) -> None:
    found = bench.scores(bench.exact)
    assert max(found.kl) == pytest.approx(0, abs=1e-9)
    assert set(found.agreement) == {1.0}
    assert 20 < found.perplexity < 120


@pytest.mark.parametrize("name", CHEAP)
def test_every_format_moves_the_predictions_and_shrinks_the_weights(bench: Laboratory, name: str) -> None:
    found = bench.measure(name)
    assert 0 < bootstrap(found.scores.kl).mean < 0.5
    linear = sum(layer.weight.numel() for layer in linear_layers(bench.exact).values())
    values = bench.exact_bytes - 2 * linear + linear * found.variant.weights // 8
    stored = bench.weight_bytes(found)
    assert values < stored < values * 1.06, "the values, and a few percent of scales"


@pytest.mark.parametrize("name", ["INT4 AWQ", "W4A8 AWQ", "INT4 GPTQ"])
def test_the_searching_formats_work_and_their_bytes_are_those_of_four_bits(bench: Laboratory, name: str) -> None:
    found = bench.measure(name, bench.calibration(1))
    assert 0 < bootstrap(found.scores.kl).mean < 0.5
    assert bench.weight_bytes(found) < 0.5 * bench.exact_bytes


def test_the_defined_bytes_are_those_of_an_export(bench: Laboratory) -> None:
    """Of a format that is exported, computed as those are that are not: INT8's, but for SmoothQuant's own factors."""
    exported = bench.weight_bytes(bench.measure("INT8 weight-only"))
    inputs = 4 * len(linear_layers(bench.exact))
    assert bench.weight_bytes(bench.measure("INT8")) - inputs == exported


def test_places_switch_quantizers_off_and_on_again(bench: Laboratory) -> None:
    model = bench.measure("FP8 + FP8 KV").model
    before = set(quantizers(model))
    everything = bench.scores(model).kl
    weights = bench.switched(model, [["weight_quantizer"]]).kl
    assert paired_ratio(weights, everything).low > 1
    assert set(quantizers(model)) == before
    assert bench.scores(model).kl == everything
    one = bench.switched(model, [["layers.0."], ["down_proj"]]).kl
    assert paired_ratio(one, everything).low > 1
    with pytest.raises(UsageError, match="no quantizer is called like"):
        bench.switched(model, [["no_such_part"]])


def test_smoothing_is_the_paper_s_equation_with_modelopt_s_alpha(bench: Laboratory) -> None:
    found = bench.smoothing("model.layers.0.mlp.down_proj", bench.quantized("INT8 SmoothQuant"))
    assert found.factor == pytest.approx(found.formula(1.0), rel=0.02)
    assert found.factor != pytest.approx(found.formula(0.5), rel=0.02)
    assert max(found.smoothed) == pytest.approx(1, rel=0.02)


def test_nvfp4_keeps_its_grid_and_leaves_its_input_alone(bench: Laboratory) -> None:
    import torch

    x = torch.tensor([[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0] * 2], dtype=torch.bfloat16)
    kept = x.clone()
    assert torch.equal(round_nvfp4(x), kept)
    assert torch.equal(x, kept)
    between = x.clone()
    between[0, 6] = 4.4
    assert float(round_nvfp4(between)[0, 6]) == pytest.approx(4.0)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="FP9") as caught:
        find("FP9")
    assert "FP8 + FP8 KV" in caught.value.fix


def test_the_repair_accepts_real_texts_and_nothing_else(bench: Laboratory) -> None:
    texts = [bench.repeated_text(5), bench.repeated_text(100), *bench.calibration(GOOD_TEXTS)]
    given = {"laboratory": bench, "texts": texts, "size": 2}
    one = exercise("12-2")
    assert checked("12-2", one.solution, **given).solved
    for wrong in one.wrong:
        found = checked("12-2", wrong.answer, **given)
        assert not found.solved and wrong.says in str(found), str(found)
