"""Export as two ONNX files, one per encoder."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from tasso.errors import ModelError, install
from tasso.models.clip import Clip
from tasso.models.export.encoders import encoders, preprocessing_code, write_metadata

LARGEST_FILE = 1_500_000_000  # bytes of weights in one file; protobuf allows at most 2 GiB

README = """
```python
import numpy as np
import onnxruntime
import open_clip  # only for the tokenizer
import torchvision.transforms as T
from PIL import Image, ImageOps

image_encoder = onnxruntime.InferenceSession("FOLDER/image_encoder.onnx")
text_encoder = onnxruntime.InferenceSession("FOLDER/text_encoder.onnx")
PREPROCESSING
[image_embedding] = image_encoder.run(None, {"pixels": pixels.numpy()})
[text_embeddings] = text_encoder.run(None, {"tokens": tokens.numpy()})
scores = np.exp(LOGIT_SCALE * (image_embedding @ text_embeddings.T - 1))
probabilities = scores / scores.sum(-1, keepdims=True)
```

Inputs: `pixels`, float32, (batch, 3, SIZE, SIZE); `tokens`, int64, (batch, LENGTH). Batches may have any size.
Embeddings have unit length. `metadata.json` has the constants of the code above.
"""


def to_onnx(clip: Clip, temporary: Path, folder: Path) -> str:
    """Write the model into `temporary`; returns usage for the README."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ModelError(f"export: --to onnx needs onnx and onnxscript: {install('onnx')}") from None
    for name, (encoder, example, argument) in encoders(clip).items():
        weights = sum(p.numel() * p.element_size() for p in encoder.parameters())
        with warnings.catch_warnings(), _quiet("torch.onnx", "onnxscript"), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                encoder, (example,), str(temporary / f"{name}.onnx"), dynamo=True, verbose=False,
                input_names=[argument], output_names=["unit_embedding"],
                dynamic_shapes={argument: {0: torch.export.Dim("batch")}}, external_data=weights > LARGEST_FILE,
            )  # fmt: skip
    write_metadata(clip, temporary)
    usage = README.replace("PREPROCESSING", preprocessing_code(clip)).replace("LOGIT_SCALE", repr(clip.logit_scale))
    context_length = str(int(clip.tokenizer(["a"]).shape[-1]))
    return usage.replace("SIZE", str(clip.preprocess.size)).replace("LENGTH", context_length)


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence libraries' loggers."""
    levels = {log: log.level for log in map(logging.getLogger, names)}
    for log in levels:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)
