"""Pictures of many clients: small PNG files inside the page, the same on light and dark."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ifca.report.palette import COLOURS

ROWS, COLUMNS = 480, 600  # of a picture at most


def identity_picture(table: NDArray[np.int16]) -> str:
    """Clients x rounds, coloured by cluster; transparent where nothing is known (-1)."""
    blank = len(COLOURS)
    image = Image.fromarray(np.where(table < 0, blank, table % blank).astype(np.uint8), "P")
    image.putpalette([*[part for hexes in COLOURS for part in _parts(hexes)], 0, 0, 0])
    return _address(image, transparency=blank)


def shade_picture(strength: NDArray[np.float64]) -> str:
    """A table of numbers from 0 to 1: 0 is clear, 1 full colour; NaN is clear, too."""
    pixels = np.zeros((*strength.shape, 4), np.uint8)
    pixels[..., :3] = _parts(COLOURS[0])
    pixels[..., 3] = np.round(255 * np.nan_to_num(strength).clip(0, 1))
    return _address(Image.fromarray(pixels, "RGBA"))


def photograph(pixels: NDArray[np.uint8]) -> str:
    """An image [height, width, channels], of 1 channel or 3."""
    grey = pixels.shape[2] == 1
    return _address(Image.fromarray(pixels[..., 0] if grey else pixels, "L" if grey else "RGB"))


def _parts(colour: str) -> list[int]:
    """Red, green, blue."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _address(image: Image.Image, **options: int) -> str:
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
