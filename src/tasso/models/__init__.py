"""CLIP models: encoders, class embeddings, loading, export, merging."""
