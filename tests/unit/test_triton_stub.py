"""What the python models share: tensors that are built once."""

import numpy as np

from model_server.triton.stub import MOST_BUILT, SMALL_BYTES, BuiltTensors


class Made:
    """Stands for Triton's tensor: notes what was made."""

    def __init__(self) -> None:
        self.all: list[tuple[str, list[object]]] = []

    def __call__(self, name: str, value: np.ndarray) -> int:
        self.all.append((name, value.tolist()))
        return len(self.all)


def test_equal_small_tensors_are_built_once_and_others_are_not_taken_for_them() -> None:
    made = Made()
    built = BuiltTensors(made)
    values = [
        np.array([[1]], np.int32),
        np.array([1], np.int32),
        np.array([[1]], np.uint32),
        np.array([[2]], np.int32),
        np.zeros((1, 0), np.float32),
        np.zeros((1, 2, 0), np.float32),
    ]
    first = [built("a", value) for value in values]
    assert len(set(first)) == len(values)
    assert [built("a", value.copy()) for value in values] == first
    assert built("b", values[0]) not in first


def test_what_changes_later_is_another_tensor() -> None:
    built = BuiltTensors(Made())
    value = np.array([[1]], np.int32)
    before = built("a", value)
    value[0, 0] = 2
    assert built("a", value) != before


def test_large_tensors_are_not_kept_and_neither_are_more_than_a_few() -> None:
    made = Made()
    built = BuiltTensors(made)
    large = np.zeros(SMALL_BYTES + 1, np.uint8)
    assert built("a", large) != built("a", large)
    for number in range(3 * MOST_BUILT):
        built("a", np.array([number], np.int32))
    assert len(built._built) <= MOST_BUILT


def test_text_is_never_taken_for_an_equal_address() -> None:
    made = Made()
    built = BuiltTensors(made)
    for word in (b"one", b"two"):
        built("a", np.array([word], np.object_))
    assert made.all == [("a", [b"one"]), ("a", [b"two"])]
