"""Figures for print, as PNG and PDF, drawn with matplotlib from run folders."""

from tasso.report.figures.write import Figure, figures, write_figures

__all__ = ["Figure", "figures", "write_figures"]
