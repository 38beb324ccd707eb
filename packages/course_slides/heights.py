"""How high a slide becomes, in the pixels of the page's own 1,120 by 700: an estimate from its style sheet.

What does not fit would scroll, and a room does not see that there is more. :func:`fits` decides whether the first
figure or table stays on the slide or goes to one below it. The numbers are those of ``templates/slides.html.j2``.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import unicodedata

from course_slides.slides import PRINTED_LINES, Figure, Slide, TableOrText

PAGE_WIDTH, PAGE_HEIGHT = 1120, 700
HEADING = {1: 105.0}
OTHER_HEADING = 83.0
FIGURE_WIDTH, FIGURE_HEIGHT = 0.92 * PAGE_WIDTH, 340.0
TABLE_HEIGHT, ROW = 320.0, 29.0
MARGIN = 12.0
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def fits(slide: Slide) -> bool:
    """Whether the slide with its first figure or table is not higher than the page."""
    return height(slide) <= PAGE_HEIGHT


def height(slide: Slide) -> float:
    """Pixels of the slide with its first figure or table; the others stand on slides below."""
    told = sum(_told(one) for one in slide.sentences)
    listed = sum(_lines(item, 112) * 31.2 + 9 for item in slide.items) + (MARGIN if slide.items else 0)
    shown = sum(map(picture_height, slide.pictures[:1]))
    found = sum(_lines(one, 106) * 31.2 + MARGIN for one in slide.findings)
    printed = [] if slide.pictures or slide.findings else slide.printed.splitlines()[: PRINTED_LINES + 1]
    below = sum(_lines(line, 120) for line in printed) * 20.3 + (2 * MARGIN if printed else 0)
    checks = sum(_lines(line, 135) for one in slide.lines for line in one.splitlines()) * 23.4
    return HEADING.get(slide.level, OTHER_HEADING) + told + listed + shown + found + below + checks + MARGIN


def picture_height(picture: Figure | TableOrText) -> float:
    """Pixels of a figure, which keeps its proportions, or of a table, which scrolls by itself when it is long."""
    if isinstance(picture, Figure):
        width, high = png_size(picture.png)
        return min(FIGURE_HEIGHT, FIGURE_WIDTH * high / width) + 2 * 9
    rows = picture.text.count("<tr") or len(picture.text.splitlines())
    return min(TABLE_HEIGHT, max(ROW * rows, ROW * len(picture.text) / 200))


def png_size(png: str) -> tuple[int, int]:
    """Width and height, from the head of a PNG in base64."""
    width, high = struct.unpack(">II", base64.b64decode(png[:32])[16:24])
    return width, high


def _told(sentence: str) -> float:
    if sentence.startswith("|"):
        return min(TABLE_HEIGHT, ROW * len(sentence.splitlines()))
    return _lines(sentence, 92) * 39 + MARGIN


def _lines(text: str, wide: int) -> int:
    """Lines of a text when ``wide`` Latin letters fill one; a Chinese character is as wide as two."""
    plain = LINK.sub(r"\1", text)
    letters = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in plain)
    return max(1, math.ceil(letters / wide))
