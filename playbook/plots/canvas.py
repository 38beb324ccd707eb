"""What every plot shares: colours, marks, an empty figure, and how a figure is shown with its numbers' origin.

Colours are the Okabe-Ito palette (readable with colour-blindness); no information is carried by colour alone.
"""

from typing import Any

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#999999"
COLORS = (BLUE, ORANGE, GREEN, GREY)
MANY_COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", GREY, "#444444", "black")
HATCHES = ("", "//", "..", "xx")
DASHES = ("-", "--", ":", "-.")
MARKERS = "os^D"


def empty_figure(columns: int = 1, *, height: float = 3.2, width: float = 8.0) -> tuple[Any, Any]:
    """A figure and its axes side by side; inches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def show(figure: Any, origin: str, alt: str) -> None:
    """Display ``figure`` with the origin of its numbers in a corner and ``alt`` for those who cannot see it."""
    import matplotlib.pyplot as plt
    from IPython.display import display

    figure.text(0.995, 0.005, origin, ha="right", va="bottom", fontsize=7, color=GREY)
    display(figure, metadata={"image/png": {"alt": alt}})  # type: ignore[no-untyped-call]
    plt.close(figure)
