"""The paper's data sets: archives, unpacking, annotation files, and checks of the result."""

from tasso.data.prepare.sources import RECIPES, REFERENCE

__all__ = ["RECIPES", "REFERENCE"]
