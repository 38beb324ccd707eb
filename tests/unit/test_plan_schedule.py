"""The scheduler simulation: against a naive one that moves every sequence in every step, against laws, and by hand."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_base.errors import UsageError
from serving_base.yaml_files import read_yaml
from serving_planner.cost_model.step import StepLoad
from serving_planner.simulator.arrivals import (
    Lengths,
    Workload,
    closed_loop,
    draw_lengths,
    open_loop,
    open_loop_count,
    request_count,
)
from serving_planner.simulator.batching import (
    POLICIES_FILE,
    ClientOverhead,
    Policy,
    ReplicaLimits,
    chunk_pairs,
    client,
    kv_concurrency,
    policy,
    saturation_requests_per_s,
)
from serving_planner.simulator.result import Served, ServedRequest, percentile, steady
from serving_planner.simulator.scheduler import simulate

AMPLE = 10**7
RESERVE = Policy(admission="reserve", overlap=False)
ON_DEMAND = Policy(admission="on_demand", fits="chunk", overlap=False)


def seconds(load: StepLoad) -> float:
    """A step law with the terms of a 70B model on eight GPUs, roughly; affine in the context as a decode step is."""
    return (
        6e-3
        + 4e-5 * load.decode_sequences
        + 2.2e-8 * load.decode_context_tokens
        + 3.5e-5 * load.prefill_tokens
        + 1e-9 * load.prefill_pairs
        + 1e-5 * load.prefill_sequences
    )


def bent(load: StepLoad) -> float:
    """A law that is affine in pieces: a part that a long context hides."""
    return 4e-3 + max(3e-3 + 2e-8 * load.decode_context_tokens, 5e-8 * load.decode_context_tokens) + seconds(load)


def in_flight_most(answers: tuple[ServedRequest, ...]) -> int:
    events = sorted([(round(a.send_s, 9), 1) for a in answers] + [(round(a.end_s, 9), -1) for a in answers])
    return max(itertools.accumulate(change for _, change in events))


# Against a naive simulation


class Walker:
    """One sequence of the naive simulation: every token is counted one by one."""

    def __init__(self, index: int, lengths: Lengths, sent_s: float) -> None:
        self.index, self.lengths, self.sent_s = index, lengths, sent_s
        self.cached = self.produced = self.pages = 0
        self.goal = lengths.prompt
        self.token_s: list[float] = []

    @property
    def decodes(self) -> bool:
        return self.cached >= self.goal


def naive(workload: Workload, limits: ReplicaLimits, rules: Policy) -> dict[int, Walker]:
    """Single steps, one stage, decoding and prompts mixed; written without any of the product's bookkeeping."""
    size, capacity = rules.block_tokens, limits.kv_capacity_tokens // rules.block_tokens
    sent = 0
    coming: list[Walker] = []
    waiting: list[Walker] = []
    running: list[Walker] = []
    done: dict[int, Walker] = {}
    unfreed: list[Walker] = []
    used = 0
    now = decided = 0.0

    def pages(tokens: int) -> int:
        return -(-tokens // size)

    def send(at: float) -> None:
        nonlocal sent
        if sent < len(workload.lengths):
            coming.append(Walker(sent, workload.lengths[sent], at))
            sent += 1

    def free() -> None:
        nonlocal used
        for walker in unfreed:
            used -= walker.pages
            running.remove(walker)
        unfreed.clear()

    for at in workload.send_s or [0.0] * (workload.concurrency or 0):
        send(at)
    while coming or waiting or running:
        if not rules.overlap:
            free()
            decided = now
        waiting += [w for w in coming if w.sent_s <= decided]
        coming = [w for w in coming if w.sent_s > decided]
        alive = [w for w in running if w not in unfreed]
        crowded = False
        if rules.admission == "on_demand":
            while used + sum(pages(w.cached + 1) - w.pages for w in alive if w.decodes) > capacity:
                victim = alive.pop()
                running.remove(victim)
                used -= victim.pages
                victim.goal = victim.lengths.prompt + victim.produced
                victim.cached = victim.pages = 0
                waiting.insert(0, victim)
                crowded = True
        decoding = [w for w in alive if w.decodes]
        count, context = len(decoding), sum(w.cached + 1 for w in decoding)
        for w in decoding:
            more = max(0, pages(w.cached + 1) - w.pages)
            w.pages += more
            used += more
        budget, tokens, pairs, ended, blocked = limits.max_num_tokens - count, 0, 0.0, [], False
        for w in [w for w in alive if not w.decodes]:
            chunk = min(w.goal - w.cached, budget - tokens)
            if chunk <= 0:
                break
            more = pages(w.cached + chunk) - w.pages if rules.admission == "on_demand" else 0
            if used + more > capacity:
                running.remove(w)
                used -= w.pages
                w.cached = w.pages = 0
                waiting.insert(0, w)
                blocked = True
                break
            used += more
            w.pages += more
            pairs += sum(w.cached + k for k in range(1, chunk + 1))
            w.cached += chunk
            tokens += chunk
            if w.decodes:
                ended.append(w)
        while waiting and not blocked and not (crowded and alive) and tokens < budget:
            if len(running) >= limits.max_batch_size:
                break
            w = waiting[0]
            chunk = min(w.goal, budget - tokens)
            if chunk < w.goal and not limits.chunked:
                if count or tokens or w.goal <= limits.max_num_tokens:
                    break
                chunk = w.goal
            whole = pages(sum(w.lengths))
            now_pages = whole if rules.admission == "reserve" else pages(chunk)
            if used + (whole if rules.fits == "request" else now_pages) > capacity:
                break
            waiting.pop(0)
            running.append(w)
            w.pages, w.cached = now_pages, chunk
            used += now_pages
            tokens += chunk
            pairs += sum(range(1, chunk + 1))
            if w.decodes:
                ended.append(w)
        had_unfreed = bool(unfreed)
        free()
        if not count and not tokens:
            if had_unfreed or decided < now:
                decided = now
            elif coming:
                now = decided = min(w.sent_s for w in coming)
            continue
        start, now = now, now + seconds(StepLoad(count, context, tokens, pairs, len(ended)))
        decided = start
        for w in decoding:
            w.cached += 1
        for w in [*decoding, *ended]:
            w.produced += 1
            w.token_s.append(now)
            if w.produced == w.lengths.output:
                unfreed.append(w)
                done[w.index] = w
        if workload.concurrency is not None:
            for _ in unfreed:
                send(now)
    assert used == 0
    return done


CASES = [
    (closed_loop(8, 300, 40, ratio=0.5, requests=40), ReplicaLimits(AMPLE, max_num_tokens=512)),
    (closed_loop(8, 300, 40, ratio=0.5, requests=40), ReplicaLimits(AMPLE, max_num_tokens=512, chunked=False)),
    (closed_loop(12, 200, 100, ratio=0.3, requests=60), ReplicaLimits(2000, max_num_tokens=256)),
    (closed_loop(12, 200, 100, ratio=0.3, requests=60), ReplicaLimits(900, max_num_tokens=1000, chunked=False)),
    (closed_loop(30, 50, 20, requests=90), ReplicaLimits(AMPLE, max_num_tokens=256, max_batch_size=7)),
    (open_loop(20.0, 200, 30, ratio=0.5, requests=60), ReplicaLimits(AMPLE, max_num_tokens=512)),
    (open_loop(30.0, 200, 60, ratio=0.5, requests=60), ReplicaLimits(1500, max_num_tokens=512)),
]


@pytest.mark.parametrize("rules", [RESERVE, ON_DEMAND, Policy(admission="on_demand", fits="request", overlap=False)])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("fast_forward", [False, True])
@pytest.mark.parametrize(("workload", "limits"), CASES)
def test_every_token_is_where_a_naive_simulation_has_it(
    workload: Workload, limits: ReplicaLimits, rules: Policy, overlap: bool, fast_forward: bool
) -> None:
    rules = rules.model_copy(update={"overlap": overlap})
    served = simulate(seconds, workload, limits, rules, fast_forward=fast_forward)
    walkers = naive(workload, limits, rules)
    for index, answer in enumerate(served.answers):
        token_s = walkers[index].token_s
        assert answer.send_s + answer.ttft_s == pytest.approx(token_s[0], rel=1e-9)
        assert answer.end_s == pytest.approx(token_s[-1], rel=1e-9)
        gaps = [after - before for before, after in itertools.pairwise(token_s)]
        assert answer.longest_gap_s == pytest.approx(max(gaps, default=0.0), rel=2e-3)


def test_preempting_again_and_again_is_what_a_naive_simulation_does() -> None:
    """Long answers in a cache for a few of them: many preemptions between two ends, arrivals before and among them."""
    rules = Policy(admission="on_demand", fits="chunk")
    limits = ReplicaLimits(3000, max_num_tokens=512)
    late = tuple(0.7 * place for place in range(60))
    for workload in (
        closed_loop(20, 60, 900, ratio=0.3, requests=80),
        Workload(draw_lengths(60, 60, 900, ratio=0.3), send_s=late),
    ):
        together, singly = (simulate(bent, workload, limits, rules, fast_forward=fast) for fast in (True, False))
        assert together.preemptions == singly.preemptions > 60
        assert together.recomputed_tokens == singly.recomputed_tokens
        assert together.peak_kv_tokens == singly.peak_kv_tokens and together.max_queue == singly.max_queue
        walkers = naive(workload, limits, rules)
        fast = simulate(seconds, workload, limits, rules)
        for index, answer in enumerate(fast.answers):
            token_s = walkers[index].token_s
            gaps = [after - before for before, after in itertools.pairwise(token_s)]
            assert answer.send_s + answer.ttft_s == pytest.approx(token_s[0], rel=1e-9)
            assert answer.end_s == pytest.approx(token_s[-1], rel=1e-9)
            assert answer.longest_gap_s == pytest.approx(max(gaps), rel=1e-3)


# Properties


@st.composite
def situations(draw: st.DrawFn) -> tuple[Workload, ReplicaLimits, Policy, ClientOverhead]:
    isl, osl = draw(st.integers(1, 400)), draw(st.integers(1, 60))
    ratio, count, seed = draw(st.sampled_from([0.1, 0.8, 1.0])), draw(st.integers(1, 30)), draw(st.integers(0, 99))
    if draw(st.booleans()):
        workload = closed_loop(draw(st.integers(1, 20)), isl, osl, ratio=ratio, seed=seed, requests=count)
    else:
        workload = open_loop(draw(st.floats(1, 200)), isl, osl, ratio=ratio, seed=seed, requests=count)
    rules = Policy(
        admission=draw(st.sampled_from(["reserve", "on_demand"])),
        fits=draw(st.sampled_from(["chunk", "request"])),
        block_tokens=draw(st.sampled_from([1, 16, 64])),
        overlap=draw(st.booleans()),
        mixed=draw(st.booleans()),
    )
    chunked = draw(st.booleans())
    limits = ReplicaLimits(
        kv_capacity_tokens=isl + osl + draw(st.integers(rules.block_tokens, 3000)),
        max_num_tokens=draw(st.integers(32, 600)) if chunked else isl + draw(st.integers(0, 600)),
        max_batch_size=draw(st.integers(1, 40)),
        chunked=chunked,
        pp=draw(st.sampled_from([1, 1, 2, 3])),
    )
    return (
        workload,
        limits,
        rules,
        ClientOverhead(send_s=draw(st.sampled_from([0.0, 1e-3])), receive_s=5e-4, spacing_s=1e-4),
    )


@given(situations(), st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
def test_laws_that_hold_in_every_situation(
    situation: tuple[Workload, ReplicaLimits, Policy, ClientOverhead], fast_forward: bool
) -> None:
    workload, limits, rules, caller = situation
    seen: list[StepLoad] = []

    def watched(load: StepLoad) -> float:
        seen.append(load)
        return seconds(load)

    served = simulate(watched, workload, limits, rules, caller, fast_forward=fast_forward)
    asked = sum(item.output for item in workload.lengths)
    assert [(a.prompt_tokens, a.output_tokens) for a in served.answers] == list(workload.lengths)
    assert served.output_tokens == asked
    # every token of a prompt is computed once, every token of an answer but the last is computed once, and what a
    # preemption threw away once more
    computed = sum(item.prefill_tokens + item.decode_sequences for item in served.steps.values())
    assert computed == sum(item.prompt + item.output - 1 for item in workload.lengths) + served.recomputed_tokens
    assert (served.recomputed_tokens > 0) == (served.preemptions > 0)
    assert served.preemptions == 0 or rules.admission == "on_demand"
    assert 0 < served.peak_kv_tokens <= served.kv_capacity_tokens <= limits.kv_capacity_tokens
    if workload.concurrency is not None:
        assert in_flight_most(served.answers) <= workload.concurrency
    if not served.preemptions:  # what is computed again may be longer than a step
        assert max(item.prefill_tokens + item.decode_sequences for item in seen) <= limits.max_num_tokens
    assert max(item.decode_sequences for item in seen) <= limits.max_batch_size
    for answer in served.answers:
        assert answer.latency_s == pytest.approx(answer.ttft_s + (answer.output_tokens - 1) * answer.tpot_s, rel=1e-12)
        alone = seconds(StepLoad(0, 0, answer.prompt_tokens, chunk_pairs(0, answer.prompt_tokens), 1)) * limits.pp
        assert answer.ttft_s >= min(alone, limits.pp * 6e-3) + caller.send_s + caller.receive_s - 1e-12
        assert answer.output_tokens == 1 or answer.tpot_s >= limits.pp * 6e-3
        assert answer.longest_gap_s >= answer.tpot_s - 1e-12
        assert 0 <= answer.queue_s <= answer.ttft_s + served.preemptions * answer.latency_s
    busy_s = sum(item.seconds for item in served.steps.values())
    assert busy_s <= served.makespan_s * (1 + 1e-3)


@given(situations())
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_steps_taken_together_change_nothing_in_any_situation(
    situation: tuple[Workload, ReplicaLimits, Policy, ClientOverhead],
) -> None:
    together, singly = (simulate(seconds, *situation, fast_forward=fast) for fast in (True, False))
    assert together.ttft_s == pytest.approx(singly.ttft_s, rel=1e-6)
    assert together.latency_s == pytest.approx(singly.latency_s, rel=1e-6)
    assert together.preemptions == singly.preemptions and together.peak_kv_tokens == singly.peak_kv_tokens
    for kind, steps in together.steps.items():
        assert replace(steps, seconds=0.0, prefill_pairs=0.0) == replace(
            singly.steps[kind], seconds=0.0, prefill_pairs=0.0
        )


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=50), st.sampled_from([0, 10, 50, 90, 99, 100]))
@settings(deadline=None, derandomize=True, database=None)
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)), rel=1e-9, abs=1e-9)


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 50) == 0.0


# Many steps at once


def figures(served: Served) -> list[float]:
    return [
        served.output_tokens_per_s,
        sum(served.ttft_s) / len(served.ttft_s),
        percentile(served.ttft_s, 50),
        percentile(served.tpot_s, 50),
        percentile(served.latency_s, 99),
        served.mean_decode_batch,
        *(value for kind, value in sorted(served.seconds_by_kind.items()) if kind != "idle"),
    ]


@pytest.mark.parametrize("law", [seconds, bent])
@pytest.mark.parametrize("engine", ["tensorrt-llm", "vllm", "sglang"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_steps_taken_together_cost_what_they_cost_singly(
    law: Callable[[StepLoad], float], engine: str, pp: int
) -> None:
    """Within 0.1 %, for a law that is not affine, too."""
    workload = closed_loop(24, 512, 200, ratio=0.8, requests=120)
    limits = ReplicaLimits(AMPLE, pp=pp)
    together, singly = (
        simulate(law, workload, limits, policy(engine), client(), fast_forward=fast) for fast in (True, False)
    )
    assert figures(together) == pytest.approx(figures(singly), rel=1e-3)
    assert together.steps["decode"].count == pytest.approx(singly.steps["decode"].count, rel=1e-3)
    assert together.longest_gap_s == pytest.approx(singly.longest_gap_s, rel=1e-3)


def test_the_number_of_step_times_asked_for_does_not_grow_with_the_length_of_answers() -> None:
    def calls(osl: int, *, fast_forward: bool = True) -> int:
        count = 0

        def counted(load: StepLoad) -> float:
            nonlocal count
            count += 1
            return seconds(load)

        workload = closed_loop(16, 100, osl, requests=100)
        simulate(counted, workload, ReplicaLimits(AMPLE), policy("tensorrt-llm"), fast_forward=fast_forward)
        return count

    assert calls(4000) <= calls(500) + 2 * 7 * 3500 / 256 + 20
    assert calls(4000) < calls(4000, fast_forward=False) / 20


def test_an_arrival_ends_a_run_of_steps_at_the_step_that_can_take_it() -> None:
    """One request decodes; the second arrives in the middle of its 1000 steps and is not seen late."""
    lengths = (Lengths(10, 1000), Lengths(10, 2))
    workload = Workload(lengths, send_s=(0.0, 3.0))
    fast, single = (
        simulate(seconds, workload, ReplicaLimits(AMPLE), RESERVE, fast_forward=fast_forward)
        for fast_forward in (True, False)
    )
    assert fast.ttft_s[1] == pytest.approx(single.ttft_s[1], rel=1e-6)
    assert fast.ttft_s[1] < 2 * seconds(StepLoad(1, 1010, 10, 55, 1))


# By hand


def test_the_prompts_of_a_start_burst_wait_for_the_steps_before_theirs() -> None:
    """Eight prompts of 100 tokens, steps of 250: two and a half prompts in each, decoding tokens first."""
    workload = closed_loop(8, 100, 50, requests=8)
    served = simulate(seconds, workload, ReplicaLimits(AMPLE, max_num_tokens=250), RESERVE)
    whole, half = chunk_pairs(0, 100), chunk_pairs(0, 50)
    steps = [StepLoad(0, 0, 250, 2 * whole + half, 2)]
    # two decode beside 248 prompt tokens: the rest of the third, the fourth, and 98 of the fifth
    steps.append(StepLoad(2, 202, 248, chunk_pairs(50, 50) + whole + chunk_pairs(0, 98), 2))
    # four decode beside 246: 2 of the fifth, the sixth and seventh, 44 of the eighth
    steps.append(StepLoad(4, 204 + 202, 246, chunk_pairs(98, 2) + 2 * whole + chunk_pairs(0, 44), 3))
    steps.append(StepLoad(7, 206 + 204 + 303, 56, chunk_pairs(44, 56), 1))
    ends = list(itertools.accumulate(seconds(step) for step in steps))
    assert served.ttft_s == pytest.approx([ends[place] for place in (0, 0, 1, 1, 2, 2, 2, 3)])
    assert served.max_queue == 8


def test_whole_prompts_wait_for_a_step_that_holds_them() -> None:
    workload = closed_loop(4, 100, 50, requests=4)
    served = simulate(seconds, workload, ReplicaLimits(AMPLE, max_num_tokens=250, chunked=False), RESERVE)
    first = seconds(StepLoad(0, 0, 200, 2 * chunk_pairs(0, 100), 2))
    second = first + seconds(StepLoad(2, 202, 200, 2 * chunk_pairs(0, 100), 2))
    assert served.ttft_s == pytest.approx([first, first, second, second])


@pytest.mark.parametrize("overlap", [False, True])
def test_an_overlapped_scheduler_lets_an_arrival_wait_for_one_step_more(overlap: bool) -> None:
    """The second request arrives in the middle of the first one's tenth decode step."""
    prompt_s = seconds(StepLoad(0, 0, 100, chunk_pairs(0, 100), 1))
    decode_s = [seconds(StepLoad(1, 101 + step)) for step in range(20)]
    arrival_s = prompt_s + sum(decode_s[:9]) + decode_s[9] / 2
    workload = Workload((Lengths(100, 50), Lengths(100, 2)), send_s=(0.0, arrival_s))
    served = simulate(seconds, workload, ReplicaLimits(AMPLE), RESERVE.model_copy(update={"overlap": overlap}))
    mixed = seconds(StepLoad(1, 111 + overlap, 100, chunk_pairs(0, 100), 1))
    assert served.ttft_s[1] == pytest.approx(decode_s[9] / 2 + overlap * decode_s[10] + mixed)


def test_an_idle_engine_takes_an_arrival_at_once_overlapped_or_not() -> None:
    workload = Workload((Lengths(100, 5), Lengths(100, 5)), send_s=(0.0, 100.0))
    prompt_s = seconds(StepLoad(0, 0, 100, chunk_pairs(0, 100), 1))
    for overlap in (False, True):
        served = simulate(seconds, workload, ReplicaLimits(AMPLE), RESERVE.model_copy(update={"overlap": overlap}))
        assert served.ttft_s == pytest.approx([prompt_s, prompt_s])
        assert served.seconds_by_kind["idle"] == pytest.approx(100 - served.answers[0].latency_s)


def test_where_prompts_have_steps_of_their_own_decoding_waits() -> None:
    arrival_s = 0.1
    workload = Workload((Lengths(100, 200), Lengths(1000, 20)), send_s=(0.0, arrival_s))
    alone = RESERVE.model_copy(update={"mixed": False})
    served = simulate(seconds, workload, ReplicaLimits(AMPLE), alone)
    prompt_s = seconds(StepLoad(0, 0, 1000, chunk_pairs(0, 1000), 1))
    assert set(served.steps) == {"decode", "prefill"}
    assert served.answers[0].longest_gap_s == pytest.approx(prompt_s + seconds(StepLoad(2, 1200)), rel=1e-2)
    assert served.answers[1].longest_gap_s == pytest.approx(seconds(StepLoad(2, 1200)), rel=1e-2)


def test_the_clients_time_is_in_ttft_and_not_in_tpot() -> None:
    workload = closed_loop(1, 100, 20, requests=5)
    bare = simulate(seconds, workload, ReplicaLimits(AMPLE), RESERVE)
    slow = ClientOverhead(send_s=0.01, send_s_per_prompt_token=1e-5, receive_s=0.005)
    served = simulate(seconds, workload, ReplicaLimits(AMPLE), RESERVE, slow)
    assert served.ttft_s == pytest.approx([value + 0.01 + 1e-3 + 0.005 for value in bare.ttft_s])
    assert served.tpot_s == pytest.approx(bare.tpot_s)
    assert served.makespan_s == pytest.approx(bare.makespan_s + 5 * 0.016)


def test_one_token_answers_have_no_time_per_token() -> None:
    served = simulate(seconds, closed_loop(2, 100, 1, requests=6), ReplicaLimits(AMPLE), RESERVE)
    assert served.tpot_s == () and served.answers[0].tpot_s == 0.0
    assert served.latency_s == served.ttft_s


def test_a_preempted_request_is_computed_again_and_its_pause_is_seen() -> None:
    """Two requests grow until the pages are gone; the later one gives way, and resumes when the first has ended."""
    workload = closed_loop(2, 160, 100, requests=2)
    served = simulate(seconds, workload, ReplicaLimits(480), ON_DEMAND)
    first, second = served.answers
    assert served.preemptions == 1
    assert served.recomputed_tokens == 240  # 160 and the 80 after which both want their 16th page of the 30
    assert first.longest_gap_s < 0.02
    assert second.longest_gap_s == pytest.approx(first.end_s - 81 * first.tpot_s, rel=0.15)
    assert second.output_tokens == 100
    assert second.latency_s > first.latency_s
    kept = simulate(seconds, workload, ReplicaLimits(480), RESERVE)
    assert kept.preemptions == 0
    assert kept.answers[1].ttft_s > kept.answers[0].latency_s  # admitted only when the first has ended


# Laws of queues


@pytest.mark.parametrize("engine", ["tensorrt-llm", "vllm", "sglang"])
@pytest.mark.parametrize("pp", [1, 2])
def test_littles_law_in_the_steady_part(engine: str, pp: int) -> None:
    served = simulate(
        seconds, closed_loop(32, 512, 128, ratio=0.8, requests=640), ReplicaLimits(AMPLE, pp=pp), policy(engine)
    )
    part = served.steady
    assert part is not None
    mean_s = sum(answer.latency_s for answer in part.answers) / len(part.answers)
    assert part.requests_per_s * mean_s == pytest.approx(32, rel=0.02)
    assert part.output_tokens_per_s > served.output_tokens_per_s


def test_the_steady_part_leaves_the_start_burst_out() -> None:
    served = simulate(seconds, closed_loop(64, 1024, 256, ratio=0.8), ReplicaLimits(AMPLE), policy("tensorrt-llm"))
    part = served.steady
    assert part is not None
    assert percentile([a.ttft_s for a in part.answers], 99) < percentile(served.ttft_s, 99) / 4
    assert len(part.answers) == 640 - 2 * 64


def test_there_is_no_steady_part_of_two_waves() -> None:
    served = simulate(seconds, closed_loop(16, 100, 50, requests=32), ReplicaLimits(AMPLE), RESERVE)
    assert served.steady is None
    assert any("no steady part" in warning for warning in served.warnings)


def test_more_requests_in_flight_never_lower_the_throughput_while_the_cache_holds_them() -> None:
    rates = []
    for concurrency in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        workload = closed_loop(concurrency, 512, 128, ratio=0.8, requests=20 * concurrency)
        part = simulate(seconds, workload, ReplicaLimits(AMPLE), policy("tensorrt-llm")).steady
        assert part is not None
        rates.append(part.output_tokens_per_s)
    for fewer, more in itertools.pairwise(rates):
        assert more > fewer * 0.99
    assert rates[-1] > 5 * rates[0]


def test_constant_lengths_in_a_closed_loop_move_in_convoys_and_poisson_arrivals_do_not() -> None:
    convoy = simulate(seconds, closed_loop(64, 1024, 256), ReplicaLimits(AMPLE), policy("tensorrt-llm"))
    part = convoy.steady
    assert part is not None
    rate = 0.9 * part.requests_per_s
    free = simulate(seconds, open_loop(rate, 1024, 256, requests=640), ReplicaLimits(AMPLE), policy("tensorrt-llm"))
    convoy_s, free_s = percentile([a.ttft_s for a in part.answers], 50), percentile(free.ttft_s, 50)
    assert convoy_s > 2 * free_s


def test_a_whole_prompt_stalls_everyone_and_chunks_bound_the_stall() -> None:
    workload = Workload((Lengths(200, 2000), *[Lengths(8000, 10)] * 4), send_s=(0.0, 2.0, 4.0, 6.0, 8.0))
    whole = simulate(seconds, workload, ReplicaLimits(AMPLE, max_num_tokens=8192, chunked=False), RESERVE)
    chunks = simulate(seconds, workload, ReplicaLimits(AMPLE, max_num_tokens=512), RESERVE)
    stall = seconds(StepLoad(1, 500, 8000, chunk_pairs(0, 8000), 1))
    assert whole.longest_gap_s == pytest.approx(stall, rel=0.01)
    assert chunks.longest_gap_s < stall / 8
    assert chunks.ttft_s[1] > whole.ttft_s[1]  # what it costs: the weights are read once for each chunk


# Memory


@pytest.mark.parametrize("engine", ["tensorrt-llm", "vllm"])
def test_ttft_falls_off_a_cliff_where_the_cache_runs_out(engine: str) -> None:
    limits, rules = ReplicaLimits(100_000), policy(engine)
    mean_isl, mean_osl = 0.9 * 1024, 0.9 * 1024
    edge = kv_concurrency(mean_isl, mean_osl, limits, rules)

    def median_ttft_s(concurrency: int, kv_tokens: int = 100_000) -> float:
        workload = closed_loop(concurrency, 1024, 1024, ratio=0.8, requests=8 * concurrency)
        return percentile(simulate(seconds, workload, ReplicaLimits(kv_tokens), rules).ttft_s, 50)

    below, above = median_ttft_s(int(0.8 * edge)), median_ttft_s(2 * edge)
    assert above > 10 * below and above > 4
    assert median_ttft_s(2 * edge, AMPLE) < 3 * below  # the cache, and not the number in flight, makes the cliff


def test_the_edge_of_the_cliff_counts_whole_pages() -> None:
    limits = ReplicaLimits(64 * 100)
    sixteen, sixty_four = (Policy(admission="reserve", block_tokens=size) for size in (16, 64))
    assert kv_concurrency(900, 100, limits, RESERVE) == 6  # 6400 / (1000 + 7.5)
    assert kv_concurrency(97, 3, limits, sixteen) > kv_concurrency(97, 3, limits, sixty_four)
    assert kv_concurrency(900, 100, limits, ON_DEMAND) == 6 and kv_concurrency(600, 800, limits, ON_DEMAND) == 6
    assert kv_concurrency(600, 800, limits, RESERVE) == 4


def test_the_cache_is_never_promised_twice() -> None:
    """Reserved: as many run as fit whole, though far more tokens would fit at the start."""
    served = simulate(seconds, closed_loop(10, 100, 900, requests=10), ReplicaLimits(3000), RESERVE)
    assert served.peak_kv_tokens == 2 * 63 * 16
    assert max(item.decode_sequences / item.count for item in served.steps.values()) <= 2


# Open loop


def test_an_open_loop_counts_from_the_intended_second() -> None:
    """A server that is overrun delays every answer; a clock that starts when it is free would not show it."""
    workload = open_loop(40.0, 1024, 64, requests=200)
    served = simulate(seconds, workload, ReplicaLimits(AMPLE), RESERVE)
    assert [answer.send_s for answer in served.answers] == list(workload.send_s or ())
    late = [answer.ttft_s for answer in served.answers[-20:]]
    assert min(late) > 5 * served.answers[0].ttft_s
    assert served.utilisation is not None and served.utilisation > 1
    assert any(warning.startswith("unstable") for warning in served.warnings)


def test_a_rate_that_the_engine_bears_is_not_called_unstable() -> None:
    served = simulate(seconds, open_loop(8.0, 1024, 64, requests=200), ReplicaLimits(AMPLE), RESERVE)
    assert served.utilisation is not None and served.utilisation < 0.5
    assert served.warnings == ()
    part = served.steady
    assert part is not None and part.requests_per_s == pytest.approx(8.0, rel=0.05)


def test_near_saturation_is_said() -> None:
    rate = 0.97 * saturation_requests_per_s(seconds, 1024, 64, ReplicaLimits(AMPLE), RESERVE)
    served = simulate(seconds, open_loop(rate, 1024, 64, requests=300), ReplicaLimits(AMPLE), RESERVE)
    assert "97% of the rate that saturates" in served.warnings[0]


@pytest.mark.parametrize("engine", ["tensorrt-llm", "vllm", "sglang"])
@pytest.mark.parametrize(("pp", "capacity"), [(1, 200_000), (2, 200_000), (1, AMPLE)])
def test_the_rate_of_saturation_is_what_a_closed_loop_reaches(engine: str, pp: int, capacity: int) -> None:
    limits = ReplicaLimits(capacity, max_batch_size=256, pp=pp)
    most = saturation_requests_per_s(seconds, 0.9 * 1024, 0.9 * 256, limits, policy(engine))
    in_flight = min(256, kv_concurrency(0.9 * 1024, 0.9 * 256, limits, policy(engine)))
    workload = closed_loop(in_flight, 1024, 256, ratio=0.8, requests=8 * in_flight)
    part = simulate(seconds, workload, limits, policy(engine)).steady
    assert part is not None
    if pp == 1:
        assert part.requests_per_s == pytest.approx(most, rel=0.08)
    else:  # micro-batches with and without prompts differ, and the shorter ones wait: the bound leaves that out
        assert 0.6 * most < part.requests_per_s < most


# Pipeline


def test_a_pipeline_is_as_slow_as_one_stage_for_one_request_and_faster_for_many() -> None:
    def compute_bound(load: StepLoad) -> float:
        return 1e-3 + 2e-4 * (load.decode_sequences + load.prefill_tokens)

    def quarter(load: StepLoad) -> float:
        return compute_bound(load) / 4

    def rates(concurrency: int) -> tuple[float, float, Served]:
        workload = closed_loop(concurrency, 8, 128, ratio=0.8, requests=12 * concurrency)
        whole = simulate(compute_bound, workload, ReplicaLimits(AMPLE), RESERVE, caller)
        split = simulate(quarter, workload, ReplicaLimits(AMPLE, pp=4), RESERVE, caller)
        return whole.output_tokens_per_s, split.output_tokens_per_s, split

    caller = ClientOverhead(send_s=1e-3, spacing_s=1e-3)
    whole, split, served = rates(1)
    assert split == pytest.approx(whole, rel=1e-6)
    assert served.seconds_by_kind["idle"] == pytest.approx(0.75 * served.makespan_s, rel=1e-2)
    assert any("cannot fill 4 pipeline stages" in warning for warning in served.warnings)
    whole, split, served = rates(256)
    assert 3 * whole < split < 4 * whole  # the rest is the bubble of micro-batches that differ
    assert 0 < served.seconds_by_kind["idle"] < 0.25 * served.makespan_s
    assert served.warnings == ()


def test_a_burst_that_fits_one_step_fills_one_micro_batch_and_leaves_the_other_stages_idle() -> None:
    """What both engines do with requests that are there at once; replacements that come a moment later spread out."""
    workload = closed_loop(32, 8, 128, requests=320)
    at_once = simulate(seconds, workload, ReplicaLimits(AMPLE, pp=2), RESERVE)
    assert at_once.seconds_by_kind["idle"] == pytest.approx(at_once.makespan_s / 2, rel=1e-3)
    spread = simulate(
        seconds, workload, ReplicaLimits(AMPLE, pp=2), RESERVE, ClientOverhead(send_s=1e-3, spacing_s=1e-3)
    )
    assert spread.seconds_by_kind["idle"] < 0.2 * spread.makespan_s


def test_two_micro_batches_share_two_stages_without_waiting() -> None:
    """Two requests, one in each micro-batch: after the start every stage is busy, and TPOT is two stage times."""
    workload = Workload((Lengths(50, 400), Lengths(50, 400)), send_s=(0.0, 0.004))
    served = simulate(seconds, workload, ReplicaLimits(AMPLE, pp=2), RESERVE)
    turn_s = 2 * seconds(StepLoad(1, 250))
    assert served.tpot_s == pytest.approx([turn_s, turn_s], rel=0.01)
    assert served.seconds_by_kind["idle"] < 0.02 * served.makespan_s
    assert served.mean_decode_batch == pytest.approx(1.0)


# Workloads, policies, refusals


def test_seeds_make_the_same_requests_again_and_others_make_others() -> None:
    again = [
        simulate(seconds, closed_loop(8, 200, 50, ratio=0.5, seed=3), ReplicaLimits(AMPLE), RESERVE) for _ in range(2)
    ]
    assert again[0] == again[1]
    assert closed_loop(8, 200, 50, ratio=0.5, seed=4).lengths != closed_loop(8, 200, 50, ratio=0.5, seed=3).lengths
    assert open_loop(5, 200, 50, requests=9, seed=1).send_s != open_loop(5, 200, 50, requests=9, seed=2).send_s


def test_lengths_are_drawn_between_the_ratio_and_the_nominal() -> None:
    lengths = draw_lengths(2000, 1000, 100, ratio=0.8, seed=1)
    prompts, outputs = [item.prompt for item in lengths], [item.output for item in lengths]
    assert min(prompts) >= 800 and max(prompts) <= 1000 and min(outputs) >= 80 and max(outputs) <= 100
    assert sum(prompts) / 2000 == pytest.approx(900, rel=0.01)
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 0.1
    assert set(draw_lengths(50, 1000, 100)) == {Lengths(1000, 100)}


def test_poisson_gaps_have_the_rate_and_the_spread_of_their_law() -> None:
    times = open_loop(5.0, 10, 10, requests=4000).send_s
    assert times is not None
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() == pytest.approx(0.2, rel=0.08)
    assert open_loop(5.0, 10, 10, requests=40).rate == 5.0
    assert Workload((Lengths(1, 1),) * 4, send_s=(0.5, 1.0, 1.5, 2.0)).rate == 2.0


def test_counts_of_requests() -> None:
    assert [request_count(c) for c in (1, 5, 64, 256, 512, 853, 1024)] == [50, 50, 640, 2560, 2560, 2560, 3072]
    assert [open_loop_count(rate, 5.0) for rate in (1.0, 20.0, 500.0)] == [300, 1000, 3000]


def test_the_mean_load_of_a_kind_of_step() -> None:
    served = simulate(seconds, closed_loop(4, 100, 51, requests=4), ReplicaLimits(AMPLE), RESERVE)
    assert served.steps["prefill"].mean_load == StepLoad(0, 0, 400, 4 * chunk_pairs(0, 100), 4)
    decode = served.steps["decode"]
    assert decode.count == 50
    assert decode.mean_load == StepLoad(4, round(4 * (101 + 49 / 2)))
    assert decode.seconds == pytest.approx(sum(seconds(StepLoad(4, 4 * (101 + step))) for step in range(50)))


@pytest.mark.parametrize("engine", ["tensorrt-llm", "vllm", "sglang"])
def test_every_fact_of_a_policy_has_a_source(engine: str) -> None:
    content = read_yaml(POLICIES_FILE)
    given_facts = set(content[engine]) - {"sources", "fits"}
    assert set(content[engine]["sources"]) == given_facts
    assert policy(engine).admission in ("reserve", "on_demand")


def test_every_assumption_about_clients_says_what_it_is() -> None:
    content = read_yaml(POLICIES_FILE)["client"]
    assert set(content["sources"]) == set(content) - {"sources"}
    assert 0 < client().send_s < 0.01


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown engine 'orca'"):
        policy("orca")
    with pytest.raises(UsageError):
        policy("client")


@pytest.mark.parametrize(
    ("workload", "limits", "said"),
    [
        (closed_loop(2, 1000, 100), ReplicaLimits(1024), "does not fit the KV cache"),
        (closed_loop(2, 1000, 100), ReplicaLimits(AMPLE, max_num_tokens=999, chunked=False), "never fits a step"),
        (Workload((Lengths(1, 1),)), ReplicaLimits(AMPLE), "closed loop or an open one"),
        (Workload((Lengths(1, 1),), concurrency=1, send_s=(0.0,)), ReplicaLimits(AMPLE), "closed loop or an open one"),
    ],
)
def test_what_can_never_run_is_refused(workload: Workload, limits: ReplicaLimits, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        simulate(seconds, workload, limits, RESERVE)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: closed_loop(0, 10, 10), "concurrency of 0"),
        (lambda: open_loop(0.0, 10, 10, requests=5), "rate of 0.0"),
        (lambda: draw_lengths(5, 10, 10, ratio=1.5), "ratio=1.5"),
        (lambda: draw_lengths(5, 0, 10), "isl=0"),
    ],
)
def test_loads_that_are_none_are_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


def test_what_limits_the_requests_in_flight_is_said() -> None:
    few = simulate(seconds, closed_loop(20, 100, 100), ReplicaLimits(2000), RESERVE)
    assert any("the KV cache holds about 9 of the 20" in warning for warning in few.warnings)
    small = simulate(seconds, closed_loop(20, 100, 100), ReplicaLimits(AMPLE, max_batch_size=8), RESERVE)
    assert any("max_batch_size admits about 8 of the 20" in warning for warning in small.warnings)
    crowded = simulate(seconds, closed_loop(20, 100, 100), ReplicaLimits(2000), ON_DEMAND)
    assert any("the KV cache ran out" in warning for warning in crowded.warnings)
    assert simulate(seconds, closed_loop(20, 100, 100), ReplicaLimits(AMPLE), RESERVE).warnings == ()


def test_the_steady_part_of_an_open_loop_leaves_both_ramps_out() -> None:
    answers = tuple(ServedRequest(10, 11, float(place), 0.5, 5.0, 0.1, 0.0) for place in range(100))
    part = steady(answers, None)
    assert part is not None
    assert part.answers[0].send_s == 5.0 and part.answers[-1].send_s == 94.0
    assert part.requests_per_s == pytest.approx(1.0, rel=0.05)
    assert steady(answers[:8], None) is None
