"""A model as two traced TorchScript files, for programs that have torch and nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from tasso.models.clip import Clip
from tasso.models.export.encoders import encoders, preparation, write_about

README = """
```python
import open_clip  # only for the tokenizer
import torch
import torchvision.transforms as T
from PIL import Image, ImageOps

image_encoder = torch.jit.load("FOLDER/image_encoder.pt")
text_encoder = torch.jit.load("FOLDER/text_encoder.pt")
PREPARATION
with torch.no_grad():
    image_embedding = image_encoder(pixels)
    text_embeddings = text_encoder(tokens)
probabilities = (LOGIT_SCALE * image_embedding @ text_embeddings.mT).softmax(-1)
```

Batches may have any size. Embeddings have unit length. `about.json` has what the code above has as numbers. The files
can also be loaded from C++ (`torch::jit::load`). TorchScript is no longer developed by its makers; it still loads.
"""


def write_torchscript(clip: Clip, place: Path, folder: Path) -> str:
    """Fill `place`. Returns how to use it."""
    for name, (encoder, example, _) in encoders(clip).items():
        with warnings.catch_warnings(), torch.no_grad():
            # Tracing warns of comparisons of sizes, which are the same for every batch, and of being out of fashion.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(encoder, example)  # type: ignore[no-untyped-call]
        traced.save(str(place / f"{name}.pt"))
    write_about(clip, place)
    return README.replace("PREPARATION", preparation(clip)).replace("LOGIT_SCALE", repr(clip.logit_scale))
