"""Example images, embedded so that the page stays one file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

from tasso.report.collect import ReportError
from tasso.report.markup import Html, element
from tasso.report.tables import count_of

Gallery = Mapping[str, Sequence[tuple[str, bytes]]]

_PNG_START = b"\x89PNG\r\n\x1a\n"


def gallery_section(gallery: Gallery) -> Html:
    """One block per domain, one image per class."""
    blocks = []
    for domain, images in gallery.items():
        figures = [_image(domain, name, png) for name, png in images]
        count = element("span", count_of(len(images), "image"), class_="count")
        blocks.append(element("h3", domain, " ", count))
        blocks.append(element("div", *figures, class_="images"))
    return element("section", element("h2", "What the images look like", id="images"), *blocks)


def _image(domain: str, name: str, png: bytes) -> Html:
    if not png.startswith(_PNG_START) or len(png) < 24:
        raise ReportError(f"gallery: {domain}: {name}: not a PNG image")
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    image = element(
        "img",
        src="data:image/png;base64," + b64encode(png).decode("ascii"),
        alt=f"Example of the class {name} in {domain}",
        width=width,
        height=height,
    )
    return element("figure", image, element("figcaption", name))
