"""The kinds of operations in a compiled graph, grouped by what they cost. OpenVINO renames them from stage to stage."""

from collections.abc import Mapping

GROUPS: Mapping[str, frozenset[str]] = {
    "matrix product": frozenset({"MatMul", "FullyConnected"}),
    "attention": frozenset({"ScaledDotProductAttention", "PagedAttentionExtension", "PagedAttention"}),
    "norm or rotary": frozenset({"RMS", "RoPE"}),
    "conversion": frozenset({"FakeConvert", "FakeQuantize", "Convert", "ConvertLike"}),
    "arithmetic": frozenset(
        (
            "Multiply",
            "Add",
            "Subtract",
            "Divide",
            "Power",
            "Sqrt",
            "ReduceMean",
            "Swish",
            "Sin",
            "Cos",
            "Select",
            "LessEqual",
            "LogicalAnd",
            "Maximum",
            "Minimum",
            "Clamp",
            "Eltwise",
            "Math",
        )
    ),
    "moves data": frozenset(
        ("Gather", "Concat", "Concatenation", "Broadcast", "Transpose", "Reorder", "Range", "Assign", "ReadValue")
    ),
    "shape only": frozenset({"Reshape", "Squeeze", "Unsqueeze", "Slice", "StridedSlice", "ShapeOf"}),
}
"""Most of the last group compute nothing on data: a reshape or a slice is another view of the same bytes."""

OTHER = "other"


def group_operations(counts: Mapping[str, int]) -> dict[str, int]:
    """How many operations of each group; every one is counted once, an unknown kind as "other"."""
    found = dict.fromkeys([*GROUPS, OTHER], 0)
    for kind, count in counts.items():
        found[next((name for name, kinds in GROUPS.items() if kind in kinds), OTHER)] += count
    return found
