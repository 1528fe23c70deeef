"""Weight files and model folders that are damaged or do not fit, and pickles that would run code."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors.torch import load_file, save_file

from bad_inputs.case import Bad
from bad_inputs.world import CONFIG, RUN, cut, rewrite, without_tokenizer, write_model
from model_families import write_hf_clip

PWNED = "pwned"  # the file that a pickle's code would make


class Payload:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch {PWNED}",)


def known_model(place: Path) -> None:
    """The tiny model under a name that open_clip knows."""
    file = place / "configs" / "bad-inputs-tiny.json"
    file.parent.mkdir()
    file.write_text(json.dumps(without_tokenizer(CONFIG["model_cfg"])))
    open_clip.add_model_config(file.parent)


def state_dict() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        name: value.clone()
        for name, value in open_clip.CLIP(**without_tokenizer(CONFIG["model_cfg"])).state_dict().items()
    }


def file(name: str, what: str, make: Callable[[Path], object], says: str, ending: str = "pt") -> Bad:
    def both(place: Path) -> None:
        known_model(place)
        make(place / f"w.{ending}")

    words = (*RUN, "--model", "bad-inputs-tiny", "--pretrained", f"w.{ending}")
    return Bad(f"weights/{name}", what, words, rf"(?=.*w\.{ending}).*({says})", both, ("data",))


def stored(change: Callable[[dict[str, torch.Tensor]], object], ending: str = "pt") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        state = state_dict()
        change(state)
        save_file(state, path) if ending == "safetensors" else torch.save(state, path)

    return make


def folder(name: str, what: str, change: Callable[[Path], object], says: str) -> Bad:
    def make(place: Path) -> None:
        write_model(place / "mine")
        change(place / "mine")

    return Bad(
        f"weights/folder-{name}", what, (*RUN, "--model", "local-dir:mine"), rf"(?=.*mine).*({says})", make, ("data",)
    )


def hf(name: str, what: str, change: Callable[[Path], object], says: str, **saving: Any) -> Bad:
    """A checkpoint of transformers."""

    def make(place: Path) -> None:
        write_hf_clip(place / "mine", **saving)
        change(place / "mine")

    return Bad(f"weights/hf-{name}", what, (*RUN, "--model", "hf:mine"), rf"(?=.*mine).*({says})", make, ("data",))


def hf_config(change: Callable[[Any], object], file: str = "config.json") -> Callable[[Path], None]:
    return lambda place: rewrite(place / file, lambda d: change(d) and None)


def hf_pickled(place: Path) -> None:
    (place / "model.safetensors").unlink()
    torch.save({"a": Payload()}, place / "pytorch_model.bin")


def hf_nan(place: Path) -> None:
    state = load_file(place / "model.safetensors")
    state["visual_projection.weight"].view(-1)[0] = float("nan")
    save_file(state, place / "model.safetensors", {"format": "pt"})


def more_tokens(tokenizer: Any) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary.update({f"word{number}": len(vocabulary) + number for number in range(9)})


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def make(place: Path) -> None:
        state = load_file(place / "open_clip_model.safetensors")
        change(state)
        save_file(state, place / "open_clip_model.safetensors")

    return make


def config(change: Callable[[Any], object]) -> Callable[[Path], None]:
    return lambda place: rewrite(place / "open_clip_config.json", lambda d: change(d) and None)


def pickled(place: Path) -> None:
    (place / "open_clip_model.safetensors").unlink()
    torch.save({"a": Payload()}, place / "open_clip_pytorch_model.bin")


WEIGHT = "visual.conv1.weight"


def nan(state: dict[str, torch.Tensor]) -> None:
    state[WEIGHT].view(-1)[3] = float("nan")


def infinite(state: dict[str, torch.Tensor]) -> None:
    state["text_projection"].view(-1)[0] = float("inf")


def torchscript(path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)


CASES = [
    file("missing", "weights that do not exist", lambda f: None, "no such file"),
    file("empty", "an empty file", lambda f: f.write_bytes(b""), "not a plain state dict"),
    file("text", "text", lambda f: f.write_text("no"), "not a plain state dict"),
    file("truncated", "half a file", lambda f: [stored(lambda s: None)(f), cut(f)], "not a plain state dict"),
    file("code", "a pickle that would run a command", lambda f: torch.save({"a": Payload()}, f), "not a plain state dict.*a pickle can run code"),
    file("code-legacy", "the same in torch's old format", lambda f: torch.save({"a": Payload()}, f, _use_new_zipfile_serialization=False),
         "not a plain state dict.*a pickle can run code"),
    file("code-plain", "the same as a plain pickle", lambda f: f.write_bytes(pickle.dumps(Payload())), "not a plain state dict.*a pickle can run code"),
    file("code-bin", "the same, called .bin", lambda f: torch.save(Payload(), f), "a pickle can run code", "bin"),
    file("module", "a whole pickled module", lambda f: torch.save(torch.nn.Linear(2, 2), f), "a pickle can run code"),
    file("list", "a list of tensors", lambda f: torch.save([torch.ones(2)], f), "does not hold a state dict"),
    file("numbers", "numbers instead of tensors", lambda f: torch.save({"a": 3}, f), "does not hold a state dict"),
    file("nothing", "a state dict of nothing", lambda f: torch.save({}, f), "does not fit|does not hold"),
    file("shape", "a tensor of another shape", stored(lambda s: s.update({WEIGHT: torch.ones(2, 3, 8, 8)})), f"does not fit.*{WEIGHT}"),
    file("too-few", "a tensor too few", stored(lambda s: s.pop(WEIGHT)), f"does not fit.*{WEIGHT}"),
    file("too-many", "a tensor too many", stored(lambda s: s.update(extra=torch.ones(1))), "does not fit.*extra"),
    file("nan", "a weight of NaN", stored(nan), f"{WEIGHT}.*contains inf or NaN"),
    file("infinite", "an infinite weight", stored(infinite), "text_projection.*contains inf or NaN"),
    file("other-model", "the weights of something else", lambda f: torch.save(torch.nn.Linear(2, 2).state_dict(), f), "does not fit"),
    file("torchscript", "a TorchScript archive of something else", torchscript, "does not fit"),
    file("torchscript-truncated", "half a TorchScript archive", lambda f: [torchscript(f), cut(f)], "not a plain state dict|TorchScript"),
    file("torchscript-damaged", "a zip that says that it is TorchScript", lambda f: zip_of(f, "x/constants.pkl"), "TorchScript"),
    file("safetensors-empty", "an empty file", lambda f: f.write_bytes(b""), "not a readable safetensors file", "safetensors"),
    file("safetensors-truncated", "half a file", lambda f: [stored(lambda s: None, "safetensors")(f), cut(f)], "not a readable safetensors file", "safetensors"),
    file("safetensors-pickle", "a pickle called .safetensors", lambda f: f.write_bytes(pickle.dumps(Payload())), "not a readable safetensors file", "safetensors"),
    file("safetensors-nan", "a weight of NaN", stored(nan, "safetensors"), f"{WEIGHT}.*contains inf or NaN", "safetensors"),
    file("safetensors-shape", "a tensor of another shape", stored(lambda s: s.update({WEIGHT: torch.ones(1)}), "safetensors"), "does not fit", "safetensors"),
    file("safetensors-folder", "a folder instead of the file", lambda f: f.mkdir(), "no such file", "safetensors"),
    folder("no-config", "a folder without its config", lambda m: (m / "open_clip_config.json").unlink(), r"open_clip_config\.json"),
    folder("config-text", "a config that is not JSON", lambda m: (m / "open_clip_config.json").write_text("{"), r"open_clip_config\.json"),
    folder("config-list", "a list as config", lambda m: (m / "open_clip_config.json").write_text("[]"), r"open_clip_config\.json"),
    folder("config-no-text", "a config without a text tower", config(lambda d: d["model_cfg"].pop("text_cfg")), r"open_clip_config\.json"),
    folder("config-text-list", "a list instead of the text tower", config(lambda d: d["model_cfg"].update(text_cfg=[])), r"open_clip_config\.json"),
    folder("config-width", "a width that is text", config(lambda d: d["model_cfg"].update(embed_dim="wide")), "mine"),
    folder("config-unknown", "an option that open_clip does not have", config(lambda d: d["model_cfg"].update(telepathy=1)), "telepathy"),
    folder("config-other", "a config of another size", config(lambda d: d["model_cfg"].update(embed_dim=25)), "size mismatch|shape"),
    folder("config-mean", "means that are text", config(lambda d: d["preprocess_cfg"].update(mean="grey")), "mean"),
    folder("config-std", "a standard deviation of 0", config(lambda d: d["preprocess_cfg"].update(std=[0, 0, 0])), "std"),
    folder("vocabulary", "a vocabulary that does not exist", config(lambda d: d["model_cfg"]["text_cfg"].update(tokenizer_kwargs={"bpe_path": "no.gz"})), r"no\.gz"),
    folder("no-weights", "no weights", lambda m: (m / "open_clip_model.safetensors").unlink(), "mine"),
    folder("truncated", "half the weights", lambda m: cut(m / "open_clip_model.safetensors"), "mine"),
    folder("nan", "a weight of NaN", weights(nan), f"{WEIGHT}.*contains inf or NaN"),
    folder("shape", "a tensor of another shape", weights(lambda s: s.update({WEIGHT: torch.ones(1)})), WEIGHT),
    folder("code", "a pickle that would run a command", pickled, "a pickle that would run code"),
    folder("tower", "an image tower that timm does not know", config(lambda d: d["model_cfg"]["vision_cfg"].update(timm_model_name="no_such_tower")), "no_such_tower"),
    folder("no-tokenizer", "a tokenizer of transformers without its files", config(lambda d: d["model_cfg"]["text_cfg"].update(hf_tokenizer_name="a/b")), r"mine has no tokenizer.*tokenizer\.json"),
    Bad("weights/hf-missing", "a checkpoint that does not exist", (*RUN, "--model", "hf:./no-such"), r"model: no such folder: \./no-such", needs=("data",)),
    Bad("weights/hf-weights", "weights for a checkpoint that has its own", (*RUN, "--model", "hf:mine", "--pretrained", "w.pt"), r"pretrained: .*mine has its own weights", lambda p: write_hf_clip(p / "mine"), ("data",)),
    Bad("weights/object", "a model object, which only Python can give", (*RUN, "--model", "object:CLIP-0123"), r"object:CLIP-0123 is a model object", needs=("data",)),
    hf("model-type", "a model of another kind", hf_config(lambda d: d.update(model_type="blip")), "model_type 'blip'; supported are clip, siglip"),
    hf("naflex", "images of no fixed size", hf_config(lambda d: d.update(model_type="siglip2")), "model_type 'siglip2'; supported are clip, siglip"),
    hf("config-text", "a config that is not JSON", lambda m: (m / "config.json").write_text("{"), "config.json"),
    hf("no-config", "no config", lambda m: (m / "config.json").unlink(), "has no config"),
    hf("no-weights", "no weights", lambda m: (m / "model.safetensors").unlink(), "has no weights"),
    hf("no-tokenizer", "no tokenizer", lambda m: (m / "tokenizer.json").unlink(), r"has no tokenizer.*tokenizer\.json"),
    hf("no-preprocessing", "no preprocessing", lambda m: (m / "preprocessor_config.json").unlink(), r"has no preprocessing.*preprocessor_config\.json"),
    hf("truncated", "half the weights", lambda m: cut(m / "model.safetensors"), r"model\.safetensors: damaged"),
    hf("no-shard", "a shard too few", lambda m: (m / "model-00002-of-00006.safetensors").unlink(), "model-00002-of-00006", max_shard_size="40KB"),
    hf("half-shard", "half a shard", lambda m: cut(m / "model-00002-of-00006.safetensors"), "model-00002-of-00006.safetensors: damaged", max_shard_size="40KB"),
    hf("code", "a pickle that would run a command", hf_pickled, "a pickle that would run code"),
    hf("more-layers", "the weights of a smaller model", hf_config(lambda d: d["vision_config"].update(num_hidden_layers=3)), "does not fit its config.json: it has no tensor 'vision_model.encoder.layers.2"),
    hf("fewer-layers", "the weights of a larger model", hf_config(lambda d: d["vision_config"].update(num_hidden_layers=1)), "does not fit its config.json: it has a tensor of another model, 'vision_model.encoder.layers.1"),
    hf("width", "the weights of a narrower model", hf_config(lambda d: d["vision_config"].update(hidden_size=64)), "does not fit its config.json: of another shape is"),
    hf("siglip", "CLIP's weights in the name of SigLIP", hf_config(lambda d: d.update(model_type="siglip")), "does not fit its config.json"),
    hf("activation", "an activation that is not supported", hf_config(lambda d: d["text_config"].update(hidden_act="relu")), "hidden_act"),
    hf("crop", "images of another size than the model's", hf_config(lambda d: d.update(crop_size={"height": 8, "width": 8}), "preprocessor_config.json"), "which is not supported"),
    hf("tokenizer-of-another", "a larger vocabulary than the text tower's", lambda m: rewrite(m / "tokenizer.json", more_tokens), "do not belong together"),
    hf("nan", "a weight of NaN", hf_nan, "contains inf or NaN"),
    Bad("weights/nano-weights", "weights for a model that has its own", (*RUN, "--model", "nano", "--pretrained", "w.pt"), r"pretrained: nano has its own weights", needs=("data",)),
    Bad("weights/folder-weights", "weights for a folder that has its own", (*RUN, "--pretrained", "w.pt"), r"pretrained: local-dir:.*model has its own weights", needs=("model", "data")),
    Bad("weights/run-code", "a pickle instead of a checkpoint, and an image classified", ("classify", "run", "x.png", "--device", "cpu"),
        r"02-eurosat\.safetensors: damaged", lambda p: [torch.save(Payload(), p / "run/checkpoints/02-eurosat.safetensors"), (p / "x.png").write_bytes(b"")], ("model", "data", "run")),
    Bad("weights/state-code", "a pickle instead of a state", ("run", *RUN[1:-2], "--steps", "3", "--out", "half"),
        r"half/state\.safetensors: damaged", lambda p: (p / "half/state.safetensors").write_bytes(pickle.dumps(Payload())), ("model", "data", "half")),
]  # fmt: skip


def zip_of(path: Path, name: str) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"no")
