"""Figures, drawn with matplotlib: as PNG and PDF for papers, as SVG for the page."""

from tasso.report.figures.write import Figure, figures, write_figures

__all__ = ["Figure", "figures", "write_figures"]
