"""Figures for the page: each panel as SVG that takes its colours from the page and tells its values.

The same figures are saved as files, in plain colours that every program draws. `tag` notes on parts of a figure what
the page's filters and script need; files know nothing of it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from tasso.report.figures.style import LINE, MARK, PAPER, QUIET, TEXT, on_paper
from tasso.report.looks import variable

ZOOM = 1.6  # pixels of the page per point of the figure
# Colours of paper -> variables of the page, which has a light and a dark mode. Others are those of methods.
VARIABLES = {
    LINE: "var(--line)", QUIET: "var(--quiet)", TEXT: "var(--text)", MARK: "var(--mark)", PAPER: "var(--page)",
}  # fmt: skip
_DROPPED_STYLES = {"font-family", "stroke-linecap", "stroke-linejoin"}
_NUMBER = re.compile(r"-?\d+\.\d+")


def tag(artist: Artist, *, tip: str = "", fill: str = "", **attributes: str) -> None:
    """Note what the page shall do with a part of a figure, or with a panel.

    Args:
        tip: lines that are shown where the reader points or moves the focus.
        fill: a colour of the page, in place of the one on paper.
        attributes: of the SVG element; `data_method` is data-method.
    """
    if on_paper():
        return
    noted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    artist.set_gid(json.dumps({"tip": tip, "fill": fill, **noted}))


def panels(figure: Figure, styles: dict[str, str]) -> list[Markup]:
    """One SVG element per panel of a figure that was drawn under `drawing(page=True)`.

    Args:
        styles: gets the styles of the parts, each with the name of its CSS class: most are used hundreds of times.
    """
    figure.set_dpi(72)
    margins = _margins(figure)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(text.getvalue())
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
    shapes = {f"#{path.get('id')}": path.get("d", "") for path in root.iterfind(".//defs/path")}
    tagged = [axes for axes in figure.axes if _is_panel(axes.get_gid())]
    groups = [node for node in root.iter("g") if _is_panel(node.get("id"))]
    found = []
    for axes, group in zip(tagged, groups, strict=True):
        box = axes.get_position().transformed(figure.transFigure)
        low, high = box.x0 - margins.x0, box.x1 + margins.x1
        top, bottom = figure.bbox.height - box.y1 - margins.y1, figure.bbox.height - box.y0 + margins.y0
        panel = ElementTree.Element("svg", {"viewBox": f"{low:.0f} {top:.0f} {high - low:.0f} {bottom - top:.0f}"})
        panel.set("style", f"--width:{(high - low) * ZOOM:.0f}px")
        _copy(group, panel, shapes, styles, "")
        # The tag of the panel belongs to the element itself.
        (whole,) = panel
        panel.attrib |= {name: value for name, value in whole.attrib.items() if name != "panel"}
        panel[:] = list(whole)
        found.append(Markup(ElementTree.tostring(panel, encoding="unicode").replace(" />", "/>")))
    return found


def _is_panel(gid: str | None) -> bool:
    return '"panel":' in (gid or "")


def _margins(figure: Figure) -> Bbox:
    """The most that labels stick out of a panel, on each side: the same for all, so that all have one scale."""
    sides = []
    for axes in figure.axes:
        inner = axes.get_position().transformed(figure.transFigure)
        outer = axes.get_tightbbox() or inner
        sides.append((inner.x0 - outer.x0, inner.y0 - outer.y0, outer.x1 - inner.x1, outer.y1 - inner.y1))
    left, below, right, above = (max(0.0, *values) + 3 for values in zip(*sides, strict=True))
    return Bbox.from_extents(left, below, right, above)


def _copy(
    node: ElementTree.Element,
    parent: ElementTree.Element,
    shapes: Mapping[str, str],
    styles: dict[str, str],
    fill: str,
) -> None:
    """Copy what is drawn, without names, clips, fonts and the like."""
    if node.tag == "defs":
        return
    noted = json.loads(node.get("id", "{}")) if node.get("id", "").startswith("{") else {}
    tip, fill = noted.pop("tip", ""), noted.pop("fill", "") or fill
    attributes = {name: str(value) for name, value in noted.items()}
    if node.tag == "g":
        if not noted and not tip:
            for child in node:
                _copy(child, parent, shapes, styles, fill)
            return
        copied = ElementTree.SubElement(parent, "g", attributes)
        if tip:
            ElementTree.SubElement(copied, "title").text = tip
        for child in node:
            _copy(child, copied, shapes, styles, fill)
        return
    if node.tag == "use":
        href = next(value for name, value in node.attrib.items() if name.endswith("href"))
        attributes = {"d": _short(shapes[href]), "transform": _short(f"translate({node.get('x')} {node.get('y')})")}
        copied = ElementTree.SubElement(parent, "path", attributes)
    elif node.tag == "text":
        rotated = not node.get("transform", "").startswith("rotate(-0 ")
        names = ("x", "y", "transform") if rotated else ("x", "y")
        copied = ElementTree.SubElement(parent, "text", {name: _short(node.get(name, "")) for name in names})
        copied.text = node.text
    else:
        copied = ElementTree.SubElement(parent, node.tag, {"d": _short(node.get("d", ""))})
    if style := _style(node.get("style", ""), fill):
        copied.set("class", styles.setdefault(style, f"s{len(styles)}"))


def _style(style: str, fill: str) -> str:
    """The style in colours of the page."""
    found = dict(part.strip().split(": ", 1) for part in style.split(";") if part.strip())
    if fill and found.get("fill") != "none":
        found["fill"] = fill
    return ";".join(f"{name}:{_page_colour(value)}" for name, value in found.items() if name not in _DROPPED_STYLES)


def _page_colour(value: str) -> str:
    return VARIABLES.get(value, f"var({variable(value)})") if value.startswith("#") else value


def _short(text: str) -> str:
    """Coordinates with one decimal and no line breaks."""
    text = _NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text)
    return re.sub(r"\s*([MLCQz])\s*", r"\1", " ".join(text.split()))
