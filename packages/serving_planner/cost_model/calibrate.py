"""What no roofline explains on a measured machine, from the lightest loads that were measured there."""

from collections.abc import Mapping

from serving_base.errors import UsageError


def overheads(measured_tpot_ms: Mapping[int, float], planned_tpot_ms: Mapping[int, float]) -> dict[str, float]:
    """``step_overhead_us`` and ``token_overhead_us`` for :func:`serving_planner.hardware.local_machine`.

    Both by streams of a closed loop; ``planned_tpot_ms`` without overheads. What is measured beyond the plan is taken
    as a straight line in the number of streams, step + streams x token, through the two lightest loads (all of it the
    step's if there is one only); neither is below 0. :class:`UsageError` for a load that was not planned.
    """
    if not measured_tpot_ms or measured_tpot_ms.keys() - planned_tpot_ms.keys():
        raise UsageError("a load was measured and not planned, or none was measured", fix="plan the same loads")
    light = sorted(measured_tpot_ms)[:2]
    beyond = [1e3 * (measured_tpot_ms[streams] - planned_tpot_ms[streams]) for streams in light]
    token = max(0.0, (beyond[-1] - beyond[0]) / (light[1] - light[0])) if len(light) > 1 else 0.0
    return {"step_overhead_us": max(0.0, beyond[0] - light[0] * token), "token_overhead_us": token}
