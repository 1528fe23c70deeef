"""Export as two traced TorchScript files, one per encoder, for programs that only have torch."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from tasso.models.clip import Clip
from tasso.models.export.encoders import encoders, preprocessing_code, write_metadata

README = """
```python
import open_clip  # only for the tokenizer
import torch
import torchvision.transforms as T
from PIL import Image, ImageOps

image_encoder = torch.jit.load("FOLDER/image_encoder.pt")
text_encoder = torch.jit.load("FOLDER/text_encoder.pt")
PREPROCESSING
with torch.no_grad():
    image_embedding = image_encoder(pixels)
    text_embeddings = text_encoder(tokens)
probabilities = (LOGIT_SCALE * image_embedding @ text_embeddings.mT).softmax(-1)
```

Batches may have any size. Embeddings have unit length. `metadata.json` has the constants of the code above. The files
can also be loaded from C++ (`torch::jit::load`). TorchScript is deprecated in PyTorch, but still loads.
"""


def to_torchscript(clip: Clip, temporary: Path, folder: Path) -> str:
    """Write the model into `temporary`; returns usage for the README."""
    for name, (encoder, example, _) in encoders(clip).items():
        with warnings.catch_warnings(), torch.no_grad():
            # Tracing warns about comparisons of sizes, which do not depend on the batch, and that it is deprecated.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(encoder, example)  # type: ignore[no-untyped-call]
        traced.save(str(temporary / f"{name}.pt"))
    write_metadata(clip, temporary)
    return README.replace("PREPROCESSING", preprocessing_code(clip)).replace("LOGIT_SCALE", repr(clip.logit_scale))
