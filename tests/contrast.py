"""Contrast of a figure's texts with what is behind them, as WCAG 2.2 counts it, and whether a picture is opaque."""

import base64
import io
from collections.abc import Iterator
from typing import Any

LEAST = 4.5
"""To 1, for text of usual size: https://www.w3.org/TR/WCAG22/#contrast-minimum."""
SHARES = (0.2126, 0.7152, 0.0722)


def contrast(first: Any, second: Any) -> float:
    """Of two colours of matplotlib."""
    low, high = sorted((_light(first), _light(second)))
    return (high + 0.05) / (low + 0.05)


def _light(color: Any) -> float:
    from matplotlib.colors import to_rgb

    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(color)]
    return sum(share * value for share, value in zip(SHARES, linear, strict=True))


def faint_texts(figure: Any) -> Iterator[str]:
    """The texts of ``figure`` with too little contrast, and its canvas where a dark page would show through it."""
    from matplotlib.colors import to_rgba
    from matplotlib.text import Text

    ground = figure.get_facecolor()
    if to_rgba(ground)[3] < 1:
        yield "the figure is transparent"
    for text in figure.findobj(Text):
        box = text.get_bbox_patch()
        behind = box.get_facecolor() if box is not None else ground
        if text.get_text().strip() and text.get_visible() and contrast(text.get_color(), behind) < LEAST:
            yield f"{text.get_text()}: {text.get_color()} on {behind}"


def opaque(png: str) -> bool:
    """Whether a picture, as base64 of PNG, hides the page behind it everywhere."""
    from PIL import Image

    lowest, _ = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA").getchannel("A").getextrema()
    return bool(lowest == 255)
