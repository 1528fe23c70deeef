"""Export for open_clip: config, weights and, if the model has its own, the vocabulary."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import open_clip
from safetensors.torch import save_file

from tasso.errors import ModelError
from tasso.models.classifier import Classifier
from tasso.models.clip import Clip
from tasso.models.export.classes import classes_code, write_classes
from tasso.models.export.folder import check_described
from tasso.models.hf import SiglipTowers
from tasso.models.loading import CONFIG_NAME

README = """
```python
import open_clip
import torch
from PIL import Image, ImageOps

model, _, preprocess = open_clip.create_model_and_transforms("local-dir:FOLDER")
tokenizer = open_clip.get_tokenizer("local-dir:FOLDER")
model.eval()
image = ImageOps.exif_transpose(Image.open("IMAGE")).convert("RGB")
with torch.no_grad():
    image_embedding = model.encode_image(preprocess(image)[None], normalize=True)
    text_embeddings = model.encode_text(tokenizer(TEXTS), normalize=True)
    probabilities = (model.logit_scale.exp() * image_embedding @ text_embeddings.mT).softmax(-1)
```

`open_clip_config.json` has the activation (`quick_gelu`) and the preprocessing, so embeddings are those of tasso. In
tasso the folder can be used with `--model local-dir:FOLDER`.
"""


EMBEDDING = """
model = open_clip.create_model("local-dir:FOLDER").eval()
with torch.no_grad():
    image_embedding = model.encode_image(pixels, normalize=True).numpy()"""
TOKENS = """
model = open_clip.create_model("local-dir:FOLDER").eval()
found = []  # what the last block reads, from the inputs of its first norm
norm = model.visual.get_submodule("NORM")
norm.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
with torch.no_grad():
    image_embedding = model.encode_image(pixels, normalize=True).numpy()
tokens = found[0].numpy()"""


def to_open_clip(clip: Clip, classifier: Classifier | None, temporary: Path, folder: Path) -> str:
    """Write the model into `temporary`, which is renamed to `folder`; returns usage for the README."""
    check_described(clip)
    if isinstance(clip.model, SiglipTowers):
        raise ModelError(f"export: {clip.spec} is a model of transformers, which open_clip does not load; use --to hf")
    (temporary / CONFIG_NAME).write_text(json.dumps(_config(clip, folder), indent=2) + "\n", encoding="utf-8")
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in clip.model.state_dict().items()}
    # The activation, for whoever loads the weights under the name of an architecture.
    activation = "true" if clip.architecture.get("quick_gelu", False) else "false"
    save_file(state, temporary / "open_clip_model.safetensors", {"format": "pt", "quick_gelu": activation})
    if isinstance(clip.tokenizer, open_clip.tokenizer.HFTokenizer):  # open_clip reads it from the folder of the weights
        clip.tokenizer.save_pretrained(temporary)
    usage = README
    if classifier:
        write_classes(classifier, temporary)
        usage = classes_code(classifier, clip, "import open_clip", EMBEDDING, TOKENS) + README
    if not clip.vocabulary:
        return usage
    shutil.copyfile(clip.vocabulary, temporary / clip.vocabulary.name)
    return usage + (
        f"\nThe config names the vocabulary `{clip.vocabulary.name}` by its full path, because open_clip looks for a "
        "relative one in\nthe working directory. After moving the folder, change `bpe_path` in "
        "`open_clip_config.json`.\n"
    )


def _config(clip: Clip, folder: Path) -> dict[str, Any]:
    architecture = copy.deepcopy(clip.architecture)
    if clip.vocabulary:
        architecture["text_cfg"]["tokenizer_kwargs"] = {"bpe_path": str(folder.resolve() / clip.vocabulary.name)}
    preprocess = dataclasses.asdict(clip.preprocess)
    del preprocess["size"]  # open_clip takes it from the model
    return {"model_cfg": architecture, "preprocess_cfg": preprocess}
