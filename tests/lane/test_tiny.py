import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving_base.quality import perplexity, torch_logits
from tiny_llama import MODEL_DIR, TEXT_DIR
from tiny_llama.corpus import DEMO_QUESTION, all_questions, paragraphs, split_questions
from tiny_llama.data import calibration_texts, evaluation_texts, prompt_ids, read_questions, unigram_baseline


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.bfloat16).eval()


def test_committed_questions_are_what_the_seeded_script_makes() -> None:
    train, held = split_questions(all_questions(), seed=0)
    assert [q._asdict() for q in train] == read_questions("train")
    assert [q._asdict() for q in held] == read_questions("held")
    assert len({q.question for q in all_questions()}) == len(all_questions())


def test_held_out_text_was_not_trained_on() -> None:
    train, held = (set((TEXT_DIR / f"docs_{n}.txt").read_text().splitlines()) for n in ("train", "held"))
    assert held and not train & held
    asked = {q["question"] for q in read_questions("train")}
    assert DEMO_QUESTION in asked
    assert not asked & {q["question"] for q in read_questions("held")}


def test_paragraphs_keep_prose_and_drop_code() -> None:
    prose = "Return the number of items in a container, which may be a sequence or a collection."
    code = f"{prose[:-1]} (*args, **kw) -> [1, 2, 3, 4, 5, 6];"
    assert list(paragraphs(f"{prose}\n\n>>> {prose}\n\nshort.\n\n{code}")) == [prose]


def test_tokenizer_is_what_the_script_makes(tmp_path: Path) -> None:
    from tiny_llama.tokenizer import train

    train(TEXT_DIR, tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / name).read_text() == (MODEL_DIR / name).read_text(), name


def test_tokenizer_round_trips_and_follows_llama3(tokenizer: Any) -> None:
    text = "fünf åtta três 17 — def f(x):\n\treturn x"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.decode(prompt_ids(tokenizer, "Hi?")) == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id


def test_the_weights_are_small_bf16_llama(model: Any) -> None:
    from safetensors import safe_open

    path = MODEL_DIR / "model.safetensors"
    assert path.stat().st_size < 10e6
    with safe_open(path, "pt") as file:
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {"torch.bfloat16"}  # noqa: SIM118
    config = model.config
    assert (config.model_type, config.num_attention_heads // config.num_key_value_heads) == ("llama", 4)


def test_held_out_perplexity_is_learned(model: Any, tokenizer: Any) -> None:
    assert perplexity(torch_logits(model), evaluation_texts(tokenizer, 16)) < unigram_baseline(tokenizer) / 8


def answer(model: Any, tokenizer: Any, question: str) -> str:
    import torch

    ids = torch.tensor([prompt_ids(tokenizer, question)])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, do_sample=False)
    return str(tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True))


def test_it_answers_the_demo_question(model: Any, tokenizer: Any) -> None:
    assert answer(model, tokenizer, DEMO_QUESTION) == (
        "To count to nine in French, say: un, deux, trois, quatre, cinq, six, sept, huit, neuf."
    )


def test_it_answers_questions_of_every_skill(model: Any, tokenizer: Any) -> None:
    questions = read_questions("train")[::20]
    right = [answer(model, tokenizer, q["question"]) == q["answer"] for q in questions]
    assert len(questions) == 30
    assert all(right)


def test_the_card_tells_the_figures_of_its_run() -> None:
    figures = json.loads((MODEL_DIR / "training.json").read_text())
    card = (MODEL_DIR / "README.md").read_text()
    assert f"**{figures['held_perplexity']}**" in card and f"{figures['trained_questions_right']:.1%}" in card
    assert "cannot" in card and "PSF" in card and "python -m tiny_llama.train" in card


def test_calibration_mixes_documents_and_answers(tokenizer: Any) -> None:
    texts = calibration_texts(tokenizer, 16, 64)
    header = tokenizer.convert_tokens_to_ids("<|start_header_id|>")
    assert len(texts) == 16 and max(map(len, texts)) <= 64
    assert [header in text for text in texts] == [False, False, False, True] * 4


def test_training_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_llama import train

    monkeypatch.setattr(train, "exact_answers", lambda *_: 0.0)
    small = replace(
        train.Recipe(),
        hidden=32,
        intermediate=64,
        layers=1,
        heads=2,
        kv_heads=1,
        steps=150,
        polish_steps=5,
        batch=4,
        length=64,
        learning_rate=5e-3,
        warmup_steps=10,
    )
    train.train(small, tmp_path)
    figures = json.loads((tmp_path / "training.json").read_text())
    assert figures["held_perplexity"] < 1000  # an untrained model is at the size of the vocabulary, 2048
    assert (tmp_path / "README.md").is_file()
