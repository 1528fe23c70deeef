"""A Hugging Face data set: from the hub, or a folder that `save_to_disk` wrote. Needs the extra `hf`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasso.config.task_specs import HUB
from tasso.data.readers.labelled import SPLIT_NAMES, Entry, LabelledImages, label_text
from tasso.data.readers.names import readable
from tasso.data.task import SPLITS, Source, Split
from tasso.errors import DataError, install
from tasso.files import user_path


class HubSource(Source):
    """Keys are `split/row`."""

    def __init__(self, where: str, parts: Mapping[Split, Any], image: str, fingerprints: Mapping[Split, str]) -> None:
        self.where, self.parts, self.image, self.fingerprints = where, parts, image, fingerprints

    def read(self, key: str) -> bytes:
        split, number = self._find(key)
        stored = self.parts[split][number][self.image]
        if stored is None:
            raise ValueError("there is no image in this row")
        if stored["bytes"] is not None:
            return bytes(stored["bytes"])
        return Path(stored["path"]).read_bytes()

    def describe(self, key: str) -> str:
        split, number = self._find(key)
        return f"{self.where}, {split}, row {number}"

    def stamps(self, keys: Sequence[str]) -> list[str]:
        """The library's fingerprint of the data set, and the row."""
        return [f"{self.fingerprints[self._find(key)[0]]} {self._find(key)[1]}" for key in keys]

    def _find(self, key: str) -> tuple[Split, int]:
        split, _, number = key.partition("/")
        return SPLIT_NAMES[split], int(number)


def read_hub(spec: str, subset: str | None = None, columns: Mapping[str, str] | None = None) -> LabelledImages:
    """Images and labels of a data set.

    Args:
        spec: `hf:NAME` on the hub, or `hf:FOLDER`, saved by `save_to_disk`.
        subset: which configuration, where a data set has several.
        columns: which columns have the image (`path`) and the `label`; by default the only ones of their kind.
    """
    try:
        import datasets
    except ImportError:
        raise DataError(f"{spec}: needs Hugging Face's datasets: {install('hf')}") from None
    loaded = _loaded(datasets, spec, subset)
    if not isinstance(loaded, datasets.DatasetDict):
        loaded = datasets.DatasetDict({"all": loaded})
    single = len(loaded) == 1 and next(iter(loaded)).lower() not in SPLIT_NAMES
    parts: dict[Split, Any] = {}
    for name, part in loaded.items():
        split = "train" if single else SPLIT_NAMES.get(str(name).lower())
        if split is not None:  # others, such as `extra` or `unsupervised`, are ignored
            parts[split] = part
    if "train" not in parts:
        raise DataError(f"{spec}: no split 'train'. Splits: {', '.join(map(str, loaded))}")
    features = parts["train"].features
    given = columns or {}
    image = _column(features, datasets.Image, given.get("path"), spec, "image", "path")
    label = _column(features, (datasets.ClassLabel, datasets.Value), given.get("label"), spec, "label", "label")
    names = features[label].names if isinstance(features[label], datasets.ClassLabel) else None
    entries = [
        Entry(f"{split}/{number}", _label(value, names, f"{spec}, {split}, row {number}"), split)
        for split in SPLITS
        if split in parts
        for number, value in enumerate(parts[split][label])
    ]
    raw = {split: part.cast_column(image, datasets.Image(decode=False)) for split, part in parts.items()}
    source = HubSource(spec, raw, image, {split: str(part._fingerprint) for split, part in parts.items()})
    if len(parts) == 1:  # a data set with one part has no splits
        entries = [Entry(entry.key, entry.label) for entry in entries]
    if names is None:
        return LabelledImages(spec, source, entries)
    return LabelledImages(spec, source, entries, tuple(names), dict(zip(names, readable(names), strict=True)))


def _loaded(datasets: Any, spec: str, subset: str | None) -> Any:
    name = spec.removeprefix(HUB)
    folder = user_path(name)
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            return datasets.load_from_disk(str(folder))
        if name.startswith((".", "~", "/")) and not folder.is_dir():
            raise DataError(f"{spec}: no such folder")
        return datasets.load_dataset(str(folder) if folder.is_dir() else name, subset)
    except DataError:
        raise
    except Exception as error:  # the hub, the network, the cache and data sets themselves fail in many ways
        raise DataError(f"{spec}: cannot be loaded: {str(error) or type(error).__name__}") from None


def _column(features: Mapping[str, Any], kinds: Any, given: str | None, spec: str, what: str, key: str) -> str:
    """The column of this kind. A label is a ClassLabel if there is one, else what is called so."""
    if given is not None:
        if given not in features:
            raise DataError(f"{spec}: no column {given!r}. Columns: {', '.join(features)}")
        return given
    found = [name for name, feature in features.items() if isinstance(feature, kinds)]
    if what == "label":
        marked = [name for name in found if type(features[name]).__name__ == "ClassLabel"]
        found = marked or [name for name in found if name.lower() in ("label", "class", "category")]
        found = [name for name in found if name == "label"] or found
    if len(found) != 1:
        problem = f"several columns may be the {what} ({', '.join(found)})" if found else f"no column is the {what}"
        raise DataError(
            f"{spec}: {problem}. Columns: {', '.join(features)}. Say which in a .yaml file of tasks, as in columns: "
            f"{{{key}: NAME}}"
        )
    return found[0]


def _label(value: Any, names: Sequence[str] | None, where: str) -> str:
    if names is None:
        if not (text := label_text(value)):
            raise DataError(f"{where}: label is {value!r}")
        return text
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise DataError(f"{where}: label {value!r} is none of 0 … {len(names) - 1}; the hub hides some test labels so")
    return names[value]
