"""How a figure gets into a notebook: a PNG on opaque paper, an alt text, a visible caption."""

from __future__ import annotations

import base64
import io
import re
import sys
from typing import Any

from matplotlib.figure import Figure

from course_utils.plots.style import PAPER, style

# Rendered at 1.5 times the CSS size, so that text stays sharp on dense screens.
PIXELS_PER_INCH = 144
_CSS_PIXELS_PER_INCH = 96


def png(figure: Figure, dpi: int = PIXELS_PER_INCH, compression: int = 6) -> bytes:
    """Return the figure as PNG bytes on opaque paper, the same bytes for the same figure.

    ``compression`` is zlib's level, 1 (fast) to 9 (small).
    """
    buffer = io.BytesIO()
    # Without this the file would carry matplotlib's version: noise in every notebook's diff.
    no_version = {"Software": None}
    with style():
        figure.savefig(
            buffer,
            format="png",
            dpi=dpi,
            facecolor=PAPER,
            metadata=no_version,
            pil_kwargs={"compress_level": compression},
        )
    return buffer.getvalue()


def plain(caption: str) -> str:
    """Return a caption's Markdown as one line of plain text, for alt texts."""
    return re.sub(r"\s+", " ", re.sub(r"[*`${}]", "", caption)).strip()


def png_bundle(figure: Figure, caption: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the mime bundle (data, metadata) of a figure, with the caption as its alt text."""
    width, height = figure.get_size_inches() * _CSS_PIXELS_PER_INCH
    data = {
        "image/png": base64.b64encode(png(figure)).decode("ascii"),
        "text/plain": plain(caption),
    }
    size = {"width": round(width), "height": round(height)}
    return data, {"image/png": {**size, "alt": plain(caption)}}


def show_caption(caption: str) -> None:
    """Display a caption (Markdown) as a sentence of its own."""
    from IPython.display import display

    display({"text/markdown": caption, "text/plain": plain(caption)}, raw=True)


def show(figure: Figure, caption: str) -> None:
    """Display a figure in a notebook, then its caption as a visible sentence, and close the figure.

    The picture is a PNG on white paper, so that it reads the same in a dark theme, and carries the
    caption as its alt text. ``caption`` is one sentence of Markdown that says what to see.
    Raises ``ValueError`` when the caption is empty.
    """
    from IPython.display import display

    if not plain(caption):
        raise ValueError(
            "show() got an empty caption; give one sentence that says what to see in the figure."
        )
    data, metadata = png_bundle(figure, caption)
    display(data, metadata=metadata, raw=True)
    show_caption(caption)
    # Only a figure that pyplot made is held by pyplot; don't import pyplot to find out.
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
