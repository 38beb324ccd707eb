"""The checker's work grows with the text and no faster: a text of twice the commands takes twice the steps."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

from each import each
from trtllm_check.lint import check_commands, fixing, target
from trtllm_check.lint.reading import read_document

FEW = 20
MOST = 2.2
SMALL = 0.005  # of all steps: what one function may take more than MOST times as many
TEXTS = {
    "a chain": """\
python3 convert_checkpoint.py --model_dir m{0} --output_dir ckpt{0} --dtype float16 --tp_size 2
trtllm-build --checkpoint_dir ckpt{0} --output_dir engine{0} --gemm_plugin auto --max_num_tokens {0}
python3 tools/fill_template.py -i repo{0}/tensorrt_llm/config.pbtxt triton_max_batch_size:8,engine_dir:engine{0}
mpirun -n 2 --allow-run-as-root python3 run.py --engine_dir engine{0} --max_output_len {0}
""",
    "containers": """\
docker run -v /a{0}:/b{0} nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3 tritonserver --model-repository /b{0}
pip install tensorrt_llm==0.12.0
git clone -b v0.12.0 https://github.com/NVIDIA/TensorRT-LLM clone{0}
""",
    "requests": """\
curl -X POST localhost:8000/v2/models/ensemble/generate -d '{{"text_input": "a{0}", "max_tokens": {0}}}'
curl -X POST localhost:8001/v2/models/nothing/generate -d '{{"text_input": "<|eot_id|>", "maximum": {0}}}'
""",
    "servers": """\
python3 tools/fill_template.py -i repo{0}/tensorrt_llm/config.pbtxt triton_max_batch_size:8,engine_dir:engine{0}
CUDA_VISIBLE_DEVICES=0 python3 scripts/launch_triton_server.py --world_size 1 --model_repo repo{0}
trtllm-serve engine{0} --port {0}
""",
    "vllm": "vllm serve Qwen/Qwen2.5-7B-Instruct --tensor-parallel-size 3 --max-model-len 8192 --port {0}\n",
    "gated": "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 3 --port {0}\n",
    "clones": """\
git clone https://github.com/NVIDIA/TensorRT-LLM clone{0}
cd clone{0} && git checkout v0.12.0 && pip install -r examples/llama/requirements.txt && cd ..
hf download Qwen/Qwen2.5-7B-Instruct --local-dir m{0}
trtllm-build --checkpoint_dir m{0} --output_dir e{0} --no_such {0}
""",
    "Python": """llm{0} = LLM(model="m{0}", tensor_parallel_size=3, max_model_len={0})
out{0} = llm{0}.generate(["a"], SamplingParams(max_new_tokens={0}))
""",
    "an image": "ENV NAME{0}=3\nRUN pip install vllm==0.6.{0}\nCOPY a{0} /b{0}\nRUN trtllm-build --no_such {0}\n",
    "a page": """## Step {0}

```bash
trtllm-build --checkpoint_dir c{0} --output_dir e{0} --max_output_len {0}
python3 run.py --engine_dir e{0} --max_output_len 5
```

Then come `vllm serve m{0} --port {0}` and the client.
""",
    "services": """  name{0}:
    image: vllm/vllm-openai:v0.6.3
    command: --model Qwen/Qwen2.5-7B-Instruct --tensor-parallel-size 3
    ports: ['{0}:8000']
    volumes: ['/m{0}:/m{0}']
""",
    "unknown flags": "trtllm-build --checkpoint_dir c{0} --output_dir e{0} --max_output_len {0} --no_such {0}\n",
}


HEADS = {
    "Python": "from vllm import LLM, SamplingParams\n",
    "an image": "FROM deepjavalibrary/djl-serving:0.28.0-lmi\n",
    "services": "services:\n",
}


def texts(name: str) -> tuple[str, str]:
    """The same text with few commands, and with twice as many."""
    short, long = ("".join(TEXTS[name].format(one) for one in range(1, many + 1)) for many in (FEW, 2 * FEW))
    head = HEADS.get(name, "")
    return head + short, head + long


def steps(work: Callable[[], object]) -> Counter[CodeType]:
    """Function -> the lines that run in ``work``, those of an inner loop each time."""
    number: Counter[CodeType] = Counter()

    def inside(frame: FrameType, event: str, argument: object) -> Any:
        number[frame.f_code] += event == "line"
        return inside

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: inside)
    try:
        work()
    finally:
        sys.settrace(before)
    return number


def check(text: str) -> None:
    document = read_document(f"# TensorRT-LLM 0.12.0\n{text}")
    assert check_commands(document, target(document, "0.12.0"))


def warm(*texts: str) -> None:
    """What is read once is read, what is imported late is imported, and what is kept of a text is kept of each."""
    for text in texts:
        check(text)


@each("name", TEXTS)
def test_twice_the_commands_take_twice_the_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixing, "MOST_CORRECTED", 2)  # as many in both texts
    short, long = texts(name)
    warm(short, long)
    fewer, more = steps(lambda: check(short)), steps(lambda: check(long))
    assert more.total() < MOST * fewer.total()
    faster = {code.co_qualname: (fewer[code], number) for code, number in more.items() if number > MOST * fewer[code]}
    assert [one for one, (few, many) in faster.items() if many - MOST * few > SMALL * more.total()] == []


BOUNDED = ("finditer", "search")  # they may be told where to begin and to end


class Counted:
    """A pattern that adds up, in ``read``, how much text it is given to look through."""

    def __init__(self, pattern: re.Pattern[str], read: list[int]) -> None:
        self._pattern, self._read = pattern, read

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._pattern, name)
        if name not in ("findall", "finditer", "search", "split", "sub"):
            return original

        def counted(*arguments: Any) -> Any:
            text = next(one for one in reversed(arguments) if isinstance(one, str))
            start, end = (arguments[1:] + (0, len(text))[len(arguments) - 1 :]) if name in BOUNDED else (0, len(text))
            self._read.append(len(text[start:end]))
            return original(*arguments)

        return counted


def patterns() -> Iterator[tuple[ModuleType, str, re.Pattern[str]]]:
    """Those that stand by a name in the checker's modules."""
    for module in [one for name, one in sys.modules.items() if name.startswith("trtllm_check")]:
        for name, value in list(vars(module).items()):
            if isinstance(value, re.Pattern):
                yield module, name, value


@each("name", TEXTS)
def test_twice_the_text_is_searched_twice_as_much(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One search through everything for each command is one line of Python and many steps of the machine."""
    monkeypatch.setattr(fixing, "MOST_CORRECTED", 2)
    short, long = texts(name)
    warm(short, long)
    read: list[int] = []
    with monkeypatch.context() as patch:
        for module, title, pattern in patterns():
            patch.setattr(module, title, Counted(pattern, read))
        check(short)
        first = sum(read)
        check(long)
    assert 10 * len(short) < first
    assert sum(read) - first < MOST * first


WHOLE = ("lower", "partition", "replace", "split", "splitlines", "upper")  # they go through all of their text


def letters(work: Callable[[], object]) -> int:
    """How much text the methods of texts go through: one call is one line of Python, and many steps of the machine."""
    number = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal number
        if event == "c_call" and getattr(argument, "__name__", "") in WHOLE:
            owner = getattr(argument, "__self__", None)
            number += len(owner) if isinstance(owner, str) else 0

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return number


@each("name", TEXTS)
def test_twice_the_text_is_cut_twice_as_much(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixing, "MOST_CORRECTED", 2)
    short, long = texts(name)
    warm(short, long)
    assert letters(lambda: check(long)) < MOST * letters(lambda: check(short))


def test_work_that_grows_faster_is_seen() -> None:
    def pairs(many: int) -> None:
        assert not any([one == other for one in range(many)] == [] for other in range(many))

    def cuts(many: int) -> None:
        assert all(len(("a\n" * many).split("\n")) == many + 1 for _ in range(many))

    assert steps(lambda: pairs(2 * FEW)).total() > MOST * steps(lambda: pairs(FEW)).total()
    assert letters(lambda: cuts(2 * FEW)) > MOST * letters(lambda: cuts(FEW))
