"""The paper's data: what to get and where, unpacking it, annotation files, and whether it is all as it should be."""

from tasso.data.prepare.sources import RECIPES, REFERENCE

__all__ = ["RECIPES", "REFERENCE"]
