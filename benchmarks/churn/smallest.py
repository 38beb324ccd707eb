"""python benchmarks/churn/smallest.py ENGINE: OpenVINO GenAI's prefix cache mixes answers up, shown without the course.

ENGINE: any folder with an ``openvino_model.xml`` that OpenVINO GenAI loads. Token ids are below 700.
"""

import sys
from typing import Any

import numpy as np
import openvino
import openvino_genai

Handle = Any


class Library:
    """A pipeline of 64 blocks on one thread."""

    def __init__(self, folder: str, *, reuse: bool, tokens_per_step: int = 256) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 0
        scheduler.num_kv_blocks = 64
        scheduler.max_num_batched_tokens = tokens_per_step
        scheduler.enable_prefix_caching = reuse
        exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": 1}
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", exact)
        self.number = 0

    def add(self, prompt: list[int], new_tokens: int) -> Handle:
        config = openvino_genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True, eos_token_id=0)
        self.number += 1
        return self.pipeline.add_request(self.number, openvino.Tensor(np.array([prompt], np.int64)), config)

    def answers(self, *handles: Handle) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in handles]
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for tokens, handle in zip(found, handles, strict=True):
                while handle.can_read():
                    tokens += next(iter(handle.read().values())).generated_ids
        return found


def partly_filled_block(folder: str, *, reuse: bool) -> bool:
    """Two prompts that go on from the same ten tokens write into the same block. True: both answers are right."""
    start = list(range(100, 110))
    prompts = [[*start, 500], [*start, 600]]
    alone = Library(folder, reuse=False)
    right = [alone.answers(alone.add(prompt, 8))[0] for prompt in prompts]
    library = Library(folder, reuse=reuse)
    library.answers(library.add(start, 1))
    return library.answers(*[library.add(prompt, 8) for prompt in prompts]) == right


def dropped_in_its_prompt(folder: str, *, reuse: bool) -> bool:
    """A prompt of 40 tokens is dropped after 16; the same prompt then starts from a block of 32."""
    prompt = list(range(300, 340))
    alone = Library(folder, reuse=False)
    right = alone.answers(alone.add(prompt, 8))
    library = Library(folder, reuse=reuse, tokens_per_step=16)
    dropped = library.add(prompt, 8)
    library.pipeline.step()
    dropped.cancel()
    library.pipeline.step()
    return library.answers(library.add(prompt, 8)) == right


if __name__ == "__main__":
    for case in (partly_filled_block, dropped_in_its_prompt):
        for reuse in (False, True):
            print(f"{case.__name__}, prefix caching {reuse}: {'right' if case(sys.argv[1], reuse=reuse) else 'WRONG'}")
