"""Figures, drawn with matplotlib: as PNG, PDF and SVG files, and for the page."""

from tasso.report.figures.write import Figure, figures, write_figures

__all__ = ["Figure", "figures", "write_figures"]
