"""CLIP models: encoders, class embeddings, loading, export, merging."""

from tasso.models.deferred import deferred

with deferred("timm", "transformers", "torch._dynamo"):
    import open_clip  # noqa: F401  (here first, whichever module of this package is imported)
