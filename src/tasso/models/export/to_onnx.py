"""A model as two ONNX files, for onnxruntime and whatever else reads them."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from tasso.errors import ModelError
from tasso.models.clip import Clip
from tasso.models.export.encoders import encoders, preparation, write_about

LARGEST_FILE = 1_500_000_000  # bytes of weights within the file; the format itself ends at 2 GiB

README = """
```python
import numpy as np
import onnxruntime
import open_clip  # only for the tokenizer
import torchvision.transforms as T
from PIL import Image, ImageOps

image_encoder = onnxruntime.InferenceSession("FOLDER/image_encoder.onnx")
text_encoder = onnxruntime.InferenceSession("FOLDER/text_encoder.onnx")
PREPARATION
[image_embedding] = image_encoder.run(None, {"pixels": pixels.numpy()})
[text_embeddings] = text_encoder.run(None, {"tokens": tokens.numpy()})
scores = np.exp(LOGIT_SCALE * (image_embedding @ text_embeddings.T - 1))
probabilities = scores / scores.sum(-1, keepdims=True)
```

Inputs: `pixels`, float32, batch × 3 × SIZE × SIZE; `tokens`, int64, batch × LENGTH. Batches may have any size.
Embeddings have unit length. `about.json` has what the code above has as numbers.
"""


def write_onnx(clip: Clip, place: Path, folder: Path) -> str:
    """Fill `place`. Returns how to use it."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ModelError("export: --to onnx needs onnx and onnxscript: pip install 'tasso[onnx]'") from None
    for name, (encoder, example, argument) in encoders(clip).items():
        weights = sum(p.numel() * p.element_size() for p in encoder.parameters())
        with warnings.catch_warnings(), _quiet("torch.onnx"), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                encoder, (example,), str(place / f"{name}.onnx"), dynamo=True, verbose=False,
                input_names=[argument], output_names=["unit_embedding"],
                dynamic_shapes={argument: {0: torch.export.Dim("batch")}}, external_data=weights > LARGEST_FILE,
            )  # fmt: skip
    write_about(clip, place)
    usage = README.replace("PREPARATION", preparation(clip)).replace("LOGIT_SCALE", repr(clip.logit_scale))
    length = str(int(clip.tokenizer(["a"]).shape[-1]))
    return usage.replace("SIZE", str(clip.preprocess.size)).replace("LENGTH", length)


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """A library's own log, silent for a while."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
