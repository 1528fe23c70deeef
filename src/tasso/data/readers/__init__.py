"""A user's own pictures as tasks: folders, tables, split files, shards and data sets of the hub."""

from tasso.data.readers.folder import pictures_below
from tasso.data.readers.load import load_own
from tasso.data.readers.split import few

__all__ = ["few", "load_own", "pictures_below"]
