"""The labelled images in other styles: the same classes, drawn or seen in clearly different ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .canvas import ImageArray

# The colours of a thermal camera, from cold to hot.
_HEAT = np.array([(8, 6, 60), (110, 10, 130), (225, 60, 50), (250, 180, 30), (255, 255, 225)], np.float32)
_MOONLIGHT = np.array((0.20, 0.26, 0.46), np.float32)


@dataclass(frozen=True)
class Style:
    """How images are drawn (`look`, a style of `Look`) and whether their pixels are replaced afterwards."""

    look: str = "photo"
    moonlight: bool = False
    thermal: bool = False

    def finish(self, image: ImageArray) -> ImageArray:
        """The pixels as this style shows them, `(H, W, 3)` uint8."""
        if self.moonlight:
            return (image * _MOONLIGHT).astype(np.uint8)
        if self.thermal:
            return _false_colours(image)
        return image


STYLES: Mapping[str, Style] = {
    "photo": Style(),
    "poster": Style("poster"),
    "night": Style(moonlight=True),
    "thermal": Style(thermal=True),
    "sketch": Style("sketch"),  # of what fills the frame, nothing would be left
}


def _false_colours(image: ImageArray) -> ImageArray:
    parts: npt.NDArray[np.uint32] = image.astype(np.uint32)
    place = (parts @ np.array((3, 6, 1), np.uint32)).astype(np.float32) * np.float32((len(_HEAT) - 1) / 2551)
    below = place.astype(np.intp)
    share = (place - below)[..., None]
    coloured: ImageArray = (_HEAT[below] * (1 - share) + _HEAT[below + 1] * share).astype(np.uint8)
    return coloured
