"""In-flight batching, simulated step by step: who waits, who is computed in which step, and when each token appears.

What a step contains is :mod:`serving_planner.simulator.batching`'s; this module has the clock. Steps in which nothing
changes are done together: the time of a decode step is affine in the context, so their sum is the trapezoid of the
first and the last.

Pipeline: ``pp`` micro-batches at most are in flight and pass the stages in order, each stage one at a time; the step
time that is given is one stage's. A micro-batch keeps its sequences, and prompts join the one that is launched next,
as in both engines; micro-batches of unequal size, or fewer than ``pp`` of them, show as idle stages. A burst that
fits one step fills one micro-batch, and a replacement that comes without delay stays in it: give a pipeline a client.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable

from serving_planner.cost_model.step import StepLoad
from serving_planner.simulator.arrivals import Workload
from serving_planner.simulator.batching import (
    ClientOverhead,
    Policy,
    ReplicaLimits,
    StepBatcher,
    refuse_the_impossible,
    saturation_requests_per_s,
)
from serving_planner.simulator.micro_batch import MicroBatch, PipelineSlot, Sequence, steps_until
from serving_planner.simulator.result import Served, ServedRequest, cautions, steps_by_kind

MOST_STEPS_AT_ONCE = 256
"""Bound on the steps that are done together, so that a step law that is not quite affine is followed piecewise."""

NO_CLIENT = ClientOverhead()


def simulate(
    seconds: Callable[[StepLoad], float],
    workload: Workload,
    limits: ReplicaLimits,
    policy: Policy,
    client: ClientOverhead = NO_CLIENT,
    *,
    fast_forward: bool = True,
) -> Served:
    """Serve ``workload`` on one replica whose step (of one pipeline stage) takes ``seconds(load)``.

    Times are the client's: TTFT runs from sending, in an open loop from the intended second, and ends when the first
    token is at the client. All requests count, the start burst included; :attr:`Served.steady` leaves it out.
    ``fast_forward=False`` computes every step by itself. :class:`UsageError` for a request that can never run.
    """
    refuse_the_impossible(workload, limits, policy)
    run = _Run(seconds, workload, limits, policy, client, fast_forward=fast_forward)
    run.to_the_end()
    return _served(run, workload, limits, policy)


class _Run:
    """The state of one simulation: the clock, the stages, and what is on its way."""

    def __init__(
        self,
        seconds: Callable[[StepLoad], float],
        workload: Workload,
        limits: ReplicaLimits,
        policy: Policy,
        client: ClientOverhead,
        *,
        fast_forward: bool,
    ) -> None:
        self.seconds, self.workload, self.client, self.fast_forward = seconds, workload, client, fast_forward
        self.pp = limits.pp
        self.overlap = policy.overlap and limits.pp == 1  # pipelines decide when they launch
        self.batcher = StepBatcher(limits, policy)
        self.idle = deque(self.batcher.micro_batch() for _ in range(limits.pp))
        self.flying: deque[tuple[float, MicroBatch]] = deque()
        self.stage_free_s = [0.0] * limits.pp
        self.now_s = 0.0
        self.decided_s = 0.0  # when the next step is decided; later arrivals are not in it
        self.coming: list[tuple[float, int, Sequence]] = []
        self.unfreed: list[Sequence] = []  # ended in the step under way when the next was decided
        self.quiet = 0  # launches since anything but decoding happened
        self.sent = 0
        self.answers: dict[int, ServedRequest] = {}
        self.log: list[tuple[StepLoad, int, float]] = []  # first load, steps alike, seconds of one stage
        self.max_queue = 0

    def to_the_end(self) -> None:
        starts = self.workload.send_s
        if starts is None:
            starts = tuple(place * self.client.spacing_s for place in range(self.workload.concurrency or 1))
        for sent_s in starts:
            self._send(sent_s)
        while self._launch_next() or self._wait():
            pass

    def _send(self, sent_s: float) -> None:
        if self.sent == len(self.workload.lengths):
            return
        item = self.workload.lengths[self.sent]
        sequence = Sequence(self.sent, item.prompt, item.output, sent_s)
        sequence.queued_s = sent_s + self.client.send_s + item.prompt * self.client.send_s_per_prompt_token
        heapq.heappush(self.coming, (sequence.queued_s, self.sent, sequence))
        self.sent += 1

    def _finish(self, sequence: Sequence, end_s: float) -> None:
        received_s = end_s + self.client.receive_s
        self.answers[sequence.index] = ServedRequest(
            prompt_tokens=sequence.prompt,
            output_tokens=sequence.output,
            send_s=sequence.sent_s,
            ttft_s=sequence.first_s + self.client.receive_s - sequence.sent_s,
            latency_s=received_s - sequence.sent_s,
            longest_gap_s=sequence.gap_s,
            queue_s=sequence.waited_s,
        )
        self.unfreed.append(sequence)
        if self.workload.concurrency is not None:
            self._send(received_s)

    def _free(self) -> None:
        if self.unfreed:
            self.batcher.free(self.unfreed)
            self.unfreed.clear()

    def _launch_next(self) -> bool:
        """Launch the micro-batch that is next; whether there was one."""
        self.now_s = max(self.now_s, self.stage_free_s[0])
        while self.flying and self.flying[0][0] <= self.now_s:
            self._complete(*self.flying.popleft())
        if not self.overlap:
            self._free()
            self.decided_s = self.now_s
        while self.coming and self.coming[0][0] <= self.decided_s:
            self.batcher.waiting.append(heapq.heappop(self.coming)[2])
        self.max_queue = max(self.max_queue, len(self.batcher.waiting))
        idle = sorted(self.idle, key=lambda item: not item.size) if len(self.idle) > 1 else self.idle
        for batch in idle:  # those with work first, in order of return
            preempted = self.batcher.preemptions
            load = self.batcher.compose(batch, self.now_s)
            if load is not None:
                self.idle.remove(batch)
                self._launch(batch, load, preempted=self.batcher.preemptions > preempted)
                return True
        return False

    def _complete(self, end_s: float, batch: MicroBatch) -> None:
        batch.complete(end_s)
        for sequence in batch.pop_ended():
            self.quiet = 0
            self._finish(sequence, end_s)
        self.idle.append(batch)

    def _wait(self) -> bool:
        """Nothing to launch: on to whatever happens next; whether anything will."""
        if self.unfreed or self.decided_s < self.now_s:
            self._free()
            self.decided_s = self.now_s
            return True
        events = [item[0][0] for item in (self.flying, self.coming) if item]
        if not events:
            return False
        self.now_s = self.decided_s = max(self.now_s, min(events))
        return True

    def _launch(self, batch: MicroBatch, load: StepLoad, *, preempted: bool) -> None:
        plain = load.prefill_tokens == 0 and not preempted and not self.unfreed and self.fast_forward
        self.quiet = self.quiet + 1 if plain else 0
        self._free()
        first_s = self.seconds(load)
        steps, last_s = 1, first_s
        if plain and self.pp == 1:
            steps, last_s = self._steps_alike(batch, load, first_s)
        busy_s = steps * (first_s + last_s) / 2
        self.log.append((load, steps, busy_s))
        end_s = self.now_s
        for stage, free_s in enumerate(self.stage_free_s):
            end_s = max(end_s, free_s) + busy_s
            self.stage_free_s[stage] = end_s
        if steps > 1:
            batch.note_gap(max(first_s, last_s))
            batch.last_end_s = end_s - last_s
        self.flying.append((end_s, batch))
        if self.overlap:
            self.decided_s = end_s - last_s
        if plain and self.pp == 1 and self.batcher.on_demand:
            self._walk(batch, end_s)
        if self.pp > 1 and self.quiet >= self.pp:
            self._run_round()

    def _steps_alike(self, batch: MicroBatch, load: StepLoad, first_s: float) -> tuple[int, float]:
        """How many decode steps from this one on are alike, and how long the last takes. Without a pipeline."""
        # The next steps are alike until a sequence ends, a page is missing or a request comes that may join: up to then
        # the same n sequences decode, each with one key more than in the step before. The load of step k is therefore
        # (n, context + (k - 1) n), and with a law that is affine in the context t(k) = t(1) + (k - 1) slope, whose sum
        # is the trapezoid that _launch takes. compose() has counted this step in `tick` and in the pages, so it and
        # next_end - tick more are left; block_tokens steps take one page a sequence, so free // n rounds surely fit.
        # The step in which somebody comes is the last; with overlap also the one behind it, decided before.
        if batch.fresh or batch.partial:
            return 1, first_s
        pool, count = self.batcher.pool, load.decode_sequences
        most = min(batch.next_end() - batch.tick + 1, MOST_STEPS_AT_ONCE)
        if self.batcher.on_demand:
            most = min(most, 1 + pool.block_tokens * (pool.free // count))
        if most <= 1:
            return 1, first_s
        last_s = self.seconds(StepLoad(count, load.decode_context_tokens + (most - 1) * count))
        steps = most
        due_s = self._due_s()
        if due_s < math.inf:
            slope_s = (last_s - first_s) / (most - 1)
            steps = steps_until(due_s - self.now_s, first_s, slope_s) + self.overlap
            steps = min(max(1, steps), most)
            last_s = first_s + slope_s * (steps - 1)
        self._skip(batch, steps - 1)
        return steps, last_s

    def _walk(self, batch: MicroBatch, end_s: float) -> None:
        """Add steps, each timed by itself, to the one that ends at ``end_s``, while not every sequence can take a page.

        Preempts when pages run out, and goes on until a sequence ends, a request comes or one is admitted: who waits
        for pages need not be asked before the next preemption, since there are only ever fewer.
        """
        # Between decode steps the batch changes by an end, a preemption or an admission only. Before `due_s` nobody
        # comes who could be admitted, and who waits now waits for pages, of which every step leaves fewer: so admission
        # needs a look after a preemption alone, as that gives pages back. `most` is how many steps go on without an end
        # and without a missing page; 0 means that the next step lacks one, so the last admitted makes room first.
        # As soon as every sequence could take a page (free >= count) whole rounds fit and _steps_alike is faster.
        if batch.fresh or batch.partial:
            return
        batcher, preempted = self.batcher, False
        if not self.overlap:
            self.decided_s = end_s
        while (most := batch.next_end() - batch.tick) > 0 and self.decided_s < (due_s := self._due_s()):
            free = batcher.pool.free
            most = min(most, batch.ticks_within(free))
            if most and (free >= batch.count or (preempted and batcher.admits(batch))):
                break
            batch.complete(end_s)
            preempted = not most
            if preempted:
                batcher.make_room(batch, end_s)
            end_s = self._single_steps(batch, end_s, most or 1, due_s)
        self.stage_free_s[0] = end_s
        self.flying[0] = end_s, batch

    def _single_steps(self, batch: MicroBatch, start_s: float, most: int, due_s: float) -> float:
        """Do ``most`` decode steps, one at least, fewer if the next is decided at ``due_s`` or later; when they end."""
        first = load = batch.decode_load()
        count, seconds, overlap = batch.count, self.seconds, self.overlap
        before_s = end_s = start_s
        longest_s = busy_s = 0.0
        for done in range(1, most + 1):
            step_s = seconds(load)
            longest_s = max(longest_s, end_s - before_s)
            before_s, end_s = end_s, end_s + step_s
            busy_s += step_s
            decided_s = end_s - step_s if overlap else end_s
            if done == most or decided_s >= due_s:
                break
            load = StepLoad(count, load.decode_context_tokens + count)
        self.decided_s = decided_s
        self.log.append((first, done, busy_s))
        self._skip(batch, done)
        if done > 1:
            batch.note_gap(longest_s)
        self.now_s = batch.last_end_s = before_s
        return end_s

    def _due_s(self) -> float:
        """When somebody comes who need not wait: whoever waits now waits for pages or a place, and nobody passes."""
        return self.coming[0][0] if self.coming and not self.batcher.waiting else math.inf

    def _skip(self, batch: MicroBatch, ticks: int) -> None:
        if self.batcher.on_demand:
            self.batcher.pool.take(batch.growth(batch.tick + 1, ticks))
        batch.advance(ticks)

    def _run_round(self) -> None:
        """Launch decode steps of the micro-batches of a pipeline in turn, until something else than decoding is due.

        Only the clock is kept for each launch; contexts, pages and the log follow at the end.
        """
        # All pp micro-batches fly and the last pp launches only decoded, so until an end, a missing page or an arrival
        # the same batches are launched in the same order: stages are first in, first out, hence in the order of return.
        # A launch starts when its batch is back (end_s) and stage 0 is free; stage s takes it when stage s - 1 has done
        # it and s itself is free: end = max(end, free[s]) + step. Step k of a batch lasts first + k slope (affine law).
        # `ticks` stops one launch before an end, which _launch has to see; pages: all batches together take one page a
        # sequence in block_tokens rounds. Starts never go back, so the first one at or after `due_s` ends the round,
        # and since contexts, pages and the log only add up, they follow at the end, once for each batch.
        everyone = [batch for _, batch in self.flying]
        if any(item.fresh or item.partial for item in everyone) or any(item.size for item in self.idle):
            return
        pool, total = self.batcher.pool, sum(item.count for item in everyone)
        most = MOST_STEPS_AT_ONCE
        if self.batcher.on_demand:
            most = min(most, pool.block_tokens * (pool.free // total))
        lanes = []
        for end_s, item in self.flying:
            ticks = min(most, item.next_end() - item.tick - 1)
            if ticks < 1:
                return
            load = item.decode_load()
            first_s = self.seconds(load)
            last_s = (
                self.seconds(StepLoad(item.count, item.context + (ticks - 1) * item.count)) if ticks > 1 else first_s
            )
            lanes.append(PipelineSlot(item, load, end_s, first_s, (last_s - first_s) / max(1, ticks - 1), ticks))
        due_s = self._due_s()
        free_s, launched = self.stage_free_s, 0
        while True:
            lane = lanes[launched % len(lanes)]
            start_s = max(lane.end_s, free_s[0])
            if lane.ticks == lane.done or start_s >= due_s:
                break
            step_s = lane.first_s + lane.slope_s * lane.done
            end_s = start_s
            for stage in range(self.pp):
                end_s = max(end_s, free_s[stage]) + step_s
                free_s[stage] = end_s
            lane.longest_s = max(lane.longest_s, lane.end_s - lane.before_s)
            lane.before_s, lane.end_s = lane.end_s, end_s
            lane.done += 1
            lane.busy_s += step_s
            launched += 1
            self.now_s = start_s
        for lane in lanes:
            if lane.done:
                self.log.append((lane.load, lane.done, lane.busy_s))
                self._skip(lane.batch, lane.done)
                lane.batch.note_gap(lane.longest_s)
                lane.batch.last_end_s = lane.before_s
        turn = launched % len(lanes)
        self.flying = deque((lane.end_s, lane.batch) for lane in [*lanes[turn:], *lanes[:turn]])


def _served(run: _Run, workload: Workload, limits: ReplicaLimits, policy: Policy) -> Served:
    answers = tuple(run.answers[place] for place in range(len(workload.lengths)))
    pool, rate = run.batcher.pool, workload.rate
    makespan_s = max(answer.end_s for answer in answers) - answers[0].send_s
    most = None if rate is None else saturation_requests_per_s(run.seconds, *workload.mean, limits, policy)
    served = Served(
        answers=answers,
        steps=steps_by_kind(run.log),
        makespan_s=makespan_s,
        kv_capacity_tokens=pool.capacity * pool.block_tokens,
        peak_kv_tokens=pool.peak * pool.block_tokens,
        mean_queue=sum(answer.queue_s for answer in answers) / makespan_s,
        max_queue=run.max_queue,
        preemptions=run.batcher.preemptions,
        recomputed_tokens=run.batcher.recomputed_tokens,
        concurrency=workload.concurrency,
        utilisation=None if rate is None or most is None else rate / most,
    )
    return cautions(served, workload, limits, policy)
