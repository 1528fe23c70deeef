"""Export as two ONNX files: the image encoder, with the classifier of a run, and the text encoder."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tasso.errors import ModelError, install
from tasso.models.classifier import Classifier
from tasso.models.clip import Clip
from tasso.models.export.classes import (
    HEADING,
    OTHER_TEXTS,
    ROUNDING,
    SAME,
    description,
    exact_preprocessing,
    write_names,
)
from tasso.models.export.encoders import graphs, preprocessing_code, write_metadata

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
CLASSIFIER = f"""{HEADING}{SAME}

```python
import json

import onnxruntime
import torchvision.transforms as T
from PIL import Image, ImageOps

PREPROCESSING
classifier = onnxruntime.InferenceSession("FOLDER/classifier.onnx")
probabilities, image_embedding = classifier.run(["probabilities", "unit_embedding"], {{"pixels": pixels.numpy()}})
answers = json.loads(classifier.get_modelmeta().custom_metadata_map["answers"])
for index in probabilities[0].argsort()[::-1][:5]:
    print(f"{{100 * probabilities[0, index]:5.1f}} %  {{answers[index]['class']}}  ({{answers[index]['task']}})")
```
{ROUNDING}
The graph begins with `pixels` as above: float32, (batch, 3, SIZE, SIZE), resized, cut out and normalised. The file's
metadata (`custom_metadata_map`, JSON) have the keys of `classes.json`.
{OTHER_TEXTS}"""


def to_onnx(clip: Clip, classifier: Classifier | None, temporary: Path, folder: Path) -> str:
    """Write the model into `temporary`; returns usage for the README."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ModelError(f"export: --to onnx needs onnx and onnxscript: {install('onnx')}") from None
    for name, graph in graphs(clip, classifier).items():
        weights = sum(p.numel() * p.element_size() for p in graph.module.parameters())
        with warnings.catch_warnings(), _quiet("torch.onnx", "onnxscript"), torch.no_grad():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                graph.module, (graph.example,), dynamo=True, verbose=False,
                input_names=[graph.argument], output_names=list(graph.outputs),
                dynamic_shapes={graph.argument: {0: torch.export.Dim("batch")}},
            )  # fmt: skip
        if classifier and name == "classifier":
            described = {key: json.dumps(value) for key, value in description(classifier).items()}
            program.model.metadata_props.update(described)
        program.save(str(temporary / f"{name}.onnx"), external_data=weights > LARGEST_FILE)
    write_metadata(clip, temporary)
    if classifier:
        write_names(classifier, temporary)
        readme = CLASSIFIER.replace("PREPROCESSING", exact_preprocessing(clip).strip()) + README
        readme = readme.replace("image_encoder.onnx", "classifier.onnx").replace(
            "[image_embedding] = image_encoder.run(None", '[image_embedding] = image_encoder.run(["unit_embedding"]'
        )
    else:
        readme = README
    usage = readme.replace("PREPROCESSING", preprocessing_code(clip)).replace("LOGIT_SCALE", repr(clip.logit_scale))
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
