"""CLIP models: encoders, class embeddings, loading, export, merging."""

from tasso.models.deferred import deferred

try:
    with deferred("timm", "transformers", "torch._dynamo"):
        import open_clip  # here first, whichever module of this package is imported
except (TypeError, AttributeError, ImportError):  # a version of open_clip that needs them at once
    import open_clip  # noqa: F401
