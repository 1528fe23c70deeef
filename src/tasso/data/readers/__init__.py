"""A user's own images as tasks: folders, tables, split files, shards and data sets of the hub."""

from tasso.data.readers.folder import images_below
from tasso.data.readers.load import load_own
from tasso.data.readers.split import few

__all__ = ["few", "images_below", "load_own"]
