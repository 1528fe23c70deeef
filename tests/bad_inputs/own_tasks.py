"""Own images, described in ways that cannot be understood."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from bad_inputs.case import Bad
from bad_inputs.world import OWN, cut, image, write_images
from own_images import png, write_shard

Make = Callable[[Path], object]


def task(
    name: str, what: str, make: Make, says: str, place: str = "birds", needs: tuple[str, ...] = ("model", "birds")
) -> Bad:
    return Bad(f"own/{name}", what, (*OWN, "--tasks", f"birds={place}"), rf"birds.*({says})", make, needs)


def table(name: str, what: str, content: str | bytes, says: str, ending: str = "csv") -> Bad:
    written = content if isinstance(content, bytes) else content.encode()
    return task(
        f"table-{name}",
        what,
        lambda p: (p / f"list.{ending}").write_bytes(written),
        rf"list\.{ending}.*({says})",
        f"list.{ending}",
    )


def names(name: str, what: str, content: str | bytes | None, says: str, file: str = "names.txt") -> Bad:
    def make(place: Path) -> None:
        if content is not None:
            (place / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        (place / "tasks.yaml").write_text(f"birds: {{from: birds, names: {file}}}\n")

    return Bad(
        f"own/names-{name}",
        what,
        (*OWN, "--tasks", "tasks.yaml"),
        rf"birds.*names: .*({says})",
        make,
        ("model", "birds"),
    )


def described(name: str, what: str, text: str, says: str, make: Make = lambda place: None) -> Bad:
    def both(place: Path) -> None:
        (place / "tasks.yaml").write_text(text)
        make(place)

    return Bad(f"own/{name}", what, (*OWN, "--tasks", "tasks.yaml"), says, both, ("model", "birds"))


def coop(name: str, what: str, content: object, says: str) -> Bad:
    text = content if isinstance(content, str) else json.dumps(content)
    return task(
        f"coop-{name}",
        what,
        lambda p: (p / "split_zhou_birds.json").write_text(text),
        rf"split_zhou_birds\.json.*({says})",
        "split_zhou_birds.json",
    )


def shard(name: str, what: str, files: dict[str, dict[str, bytes]], says: str) -> Bad:
    return task(
        f"shard-{name}",
        what,
        lambda p: write_shard(p / "birds.tar", files),
        rf"birds\.tar.*({says})",
        "birds.tar",
        ("model",),
    )


def gone(place: Path) -> None:
    shutil.rmtree(place / "birds")


def emptied(place: Path) -> None:
    gone(place)
    (place / "birds").mkdir()


def one_class(place: Path) -> None:
    shutil.rmtree(place / "birds/owl")


def zipped(place: Path, change: Callable[[Path], object] = lambda file: None) -> None:
    with zipfile.ZipFile(place / "birds.zip", "w") as archive:
        for path in sorted((place / "birds").rglob("*.png")):
            archive.write(path, path.relative_to(place))
    gone(place)
    change(place / "birds.zip")


def single(place: Path) -> None:
    gone(place)
    write_images(place / "birds", images=1)


def splits(place: Path, *there: str) -> None:
    gone(place)
    for split in there:
        write_images(place / "birds" / split)


def compressed(place: Path) -> None:
    write_shard(place / "plain.tar", {"a": {"png": png("food", 0, 0), "cls": b"x"}})
    with tarfile.open(place / "birds.tar.gz", "w:gz") as archive:
        archive.add(place / "plain.tar", "plain.tar")


ROWS = "path,label\nbirds/jay/0.png,jay\nbirds/jay/1.png,jay\nbirds/owl/0.png,owl\nbirds/owl/1.png,owl\n"
GOOD = {"a": {"png": png("food", 0, 0), "cls": b"jay"}, "b": {"png": png("food", 1, 0), "cls": b"owl"}}
LISTS = {
    "train": [["birds/jay/0.png", 0, "jay"], ["birds/owl/0.png", 1, "owl"]],
    "val": [],
    "test": [["birds/jay/1.png", 0, "jay"]],
}


def split_of_birds(place: Path) -> None:
    """CoOp's split file of the pets, with birds in it."""
    (place / "data").mkdir()
    shutil.copytree(place / "birds", place / "data/oxford_pets/birds")
    (place / "data/oxford_pets/split_zhou_OxfordPets.json").write_text(json.dumps(LISTS))


CASES = [
    Bad("own/other-split", "a split file of another data set",
        (*OWN, "--benchmark", "x-tail", "--sequence", "pets", "--data-root", "data"),
        r"pets: expected 37 .* in .*split_zhou_OxfordPets\.json \(the first class is 'jay': another data set\?\)",
        split_of_birds, ("model", "birds")),
    Bad("own/case", "classes of two tasks that differ only in case", (*OWN, "--tasks", "birds=birds", "night=night"),
        r"tasks 'birds' and 'night': the classes 'jay' and 'Jay' differ only in case",
        lambda p: write_images(p / "night", ("Jay", "owl")), ("model", "birds")),
    task("nowhere", "a folder that is not there", gone, "no such file or folder"),
    task("empty", "an empty folder", emptied, "no images here"),
    task("one-class", "a single class", one_class, "only one class"),
    task("class-empty", "a class without images", lambda p: (p / "birds/wren").mkdir(), "birds/wren: no images here"),
    task("class-texts", "a class with texts only", lambda p: [(p / "birds/wren").mkdir(), (p / "birds/wren/a.txt").write_text("x")],
         r"birds/wren: no images here .*\.txt"),
    task("loose", "an image beside the classes", lambda p: image().save(p / "birds/loose.png"), r"loose\.png lies in no class directory"),
    task("single-images", "one image per class, and none to test with", single, "no class has two images"),
    task("no-train", "only test images", lambda p: splits(p, "test"), "no images to train on"),
    task("class-untrained", "a class that is only tested", lambda p: [splits(p, "train", "test"), write_images(p / "birds/test", ("wren",))],
         "class 'wren' has test images, but none to train on"),
    task("numbers", "numbers as classes", lambda p: [gone(p), write_images(p / "birds", ("0", "1"))], "numbers and no names"),
    task("same-names", "two classes that are called the same", lambda p: [gone(p), write_images(p / "birds", ("blue jay", "blue_jay"))],
         "are both called 'blue jay'"),
    task("link-loop", "a class that is a link to itself", lambda p: [one_class(p), (p / "birds/owl").symlink_to("owl")], "only one class|owl"),
    task("link-upwards", "classes that are links back to the folder", lambda p: [one_class(p), (p / "birds/owl").symlink_to("..")], "only one class|owl|loose"),
    task("unknown-kind", "a Word document", lambda p: (p / "birds.docx").write_text("x"), "unknown kind of file", "birds.docx"),
    task("place-empty", "an empty place", lambda p: None, "from: expected a path", ""),
    task("place-loop", "a link to itself", lambda p: (p / "loop").symlink_to("loop"), "no such file or folder", "loop"),
    task("forbidden", "a folder that may not be read", lambda p: (p / "birds/owl").chmod(0), "birds"),
    task("zip-text", "text called .zip", lambda p: zipped(p, lambda z: z.write_text("no")), "not a readable zip file", "birds.zip"),
    task("zip-truncated", "half a zip", lambda p: zipped(p, cut), "not a readable zip file", "birds.zip"),
    task("zip-empty", "a zip with nothing in it", lambda p: [gone(p), zipfile.ZipFile(p / "birds.zip", "w").close()], "no images here", "birds.zip"),
    Bad("own/name", "a task called S1", (*OWN, "--tasks", "S1=birds"), r"tasks: 'S1' cannot be the name of a task", needs=("model", "birds")),
    Bad("own/name-slash", "a slash in a task's name", (*OWN, "--tasks", "a b=birds"), r"tasks: 'a b' cannot be the name", needs=("model", "birds")),
    Bad("own/name-long", "a task's name of 65 letters", (*OWN, "--tasks", f"{'x' * 65}=birds"), r"x{65}.* cannot be the name", needs=("model", "birds")),
    Bad("own/name-emoji", "an emoji as a task's name", (*OWN, "--tasks", "🐦=birds"), r"'🐦' cannot be the name", needs=("model", "birds")),
    Bad("own/twice", "two tasks of one name", (*OWN, "--tasks", "birds=birds", "Birds=birds"), r"two tasks are called 'Birds'", needs=("model", "birds")),
    Bad("own/reference-empty", "an empty folder of reference images",
        (*OWN, "--method", "tasso", "--method.rank", "6", "--tasks", "birds=birds", "--reference", "refs"), r"refs.*no images", lambda p: (p / "refs").mkdir(), ("model", "birds")),
    Bad("own/sequence", "an order of tasks that there are not", (*OWN, "--tasks", "birds=birds", "--sequence", "fish"), r"sequence.*fish", needs=("model", "birds")),
    table("empty", "an empty table", "", "no column 'path'"),
    table("header", "a table without rows", "path,label\n", "has no rows"),
    table("no-label", "a table without labels", "path,colour\nbirds/jay/0.png,blue\n", "no column 'label'"),
    table("cells", "a row with too many cells", ROWS + "birds/jay/2.png,jay,blue\n", "line 6: 3 cells"),
    table("quote", "a quotation mark that is not closed", ROWS + 'birds/jay/2.png,"jay\n', "line"),
    table("label-empty", "a row without its label", ROWS + "birds/jay/2.png,\n", "line 6: label is empty"),
    table("path-empty", "a row without its path", ROWS + ",jay\n", "line 6: path is empty"),
    table("path-twice", "an image twice", ROWS + "birds/jay/0.png,jay\n", "line 6: birds/jay/0.png is in line 2 already"),
    table("path-missing", "an image that is not there", ROWS + "birds/jay/9.png,jay\n", r"line 6: no such image: .*9\.png"),
    table("path-nul", "a NUL in a path", ROWS.encode() + b"a\x00b.png,jay\n", "line"),
    table("split", "a split that there is not", ROWS.replace("label\n", "label,split\n").replace(",jay\n", ",jay,train\n").replace(",owl\n", ",owl,later\n"),
          "line 4: no such split: 'later'"),
    table("utf16", "UTF-16", ROWS.encode("utf-16"), "not a readable text file"),
    table("binary", "an image called .csv", b"\x89PNG\r\n\x1a\n\xff\xfe", "not a readable text file"),
    table("field", "a cell of 200 000 letters", ROWS + f"birds/jay/2.png,{'x' * 200_000}\n", "line 6"),
    table("json-line", "a line that is no JSON", '{"path": "birds/jay/0.png", "label": "jay"}\n{"path": \n', "line 2: not valid JSON", "jsonl"),
    table("json-list", "a line that is a list", "[1]\n", "line 1: expected an object", "jsonl"),
    table("json-label", "a label that is a list", '{"path": "birds/jay/0.png", "label": [1]}\n', r"line 1: label is \[1\]", "jsonl"),
    table("json-deep", "a line of a hundred thousand brackets", "[" * 100_000 + "\n", "line 1: .*(nested too deeply|not valid JSON)", "jsonl"),
    described("columns-missing", "a column that is not there", "birds: {from: list.csv, columns: {path: image}}\n",
              r"list\.csv: no column 'image'", lambda p: (p / "list.csv").write_text(ROWS)),
    described("images-missing", "a folder of images that is not there", "birds: {from: list.csv, images: nowhere}\n",
              r"birds.*images: no such folder: .*nowhere", lambda p: (p / "list.csv").write_text(ROWS)),
    described("template", "a prompt without a place for the name", "birds: {from: birds, template: a bird}\n", r"birds.*template: .*a bird"),
    described("template-file", "a file with a prompt that has no place for the name", "birds: {from: birds, template: prompts.txt}\n",
              r"birds.*prompts\.txt, prompt 2 has no \{\}", lambda p: (p / "prompts.txt").write_text("a {}\na bird\n")),
    described("template-empty", "an empty file of prompts", "birds: {from: birds, template: prompts.txt}\n",
              r"birds.*prompts\.txt is empty", lambda p: (p / "prompts.txt").write_text("")),
    described("file-itself", "a file of tasks that names itself", "[tasks.yaml]\n", r"tasks\.yaml"),
    described("file-cycle", "a file of tasks that refers to itself", "birds: tasks.yaml\n", r"birds.*tasks\.yaml: unknown kind of file"),
    described("file-empty", "an empty file of tasks", "", r"tasks\.yaml: expected 'key: value' lines"),
    Bad("own/file-missing", "a file of tasks that is not there", (*OWN, "--tasks", "no.yaml"), r"no\.yaml: no such file", needs=("model",)),
    names("missing", "a names file that is not there", None, r"names\.txt: no such file"),
    names("empty", "an empty names file", "", r"names\.txt is empty"),
    names("count", "three names for two classes", "a\nb\nc\n", r"names\.txt has 3 names for 2 classes"),
    names("unknown", "a name for a class that there is not", "wren,Wren\njay,Jay\n", r"names\.txt, line 1: no class 'wren'"),
    names("twice", "two names for a class", "jay,a\njay,b\n", r"names\.txt, line 2: 'jay' has a name already"),
    described("names-same", "the same name for both classes", "birds: {from: birds, names: names.txt}\n", r"birds.*'jay' and 'owl' are both called 'same'",
              lambda p: (p / "names.txt").write_text("same\nsame\n")),
    names("json", "a names file that is no JSON", "{", r"names\.json: not valid JSON", "names.json"),
    names("json-number", "a number as name", '{"jay": 3}', r"names\.json: jay: expected a name", "names.json"),
    names("json-text", "a text in the place of names", '"jay"', r"names\.json: expected a mapping", "names.json"),
    names("yaml", "a names file that is no YAML", "jay: [", r"names\.yaml: not valid YAML", "names.yaml"),
    names("yaml-twice", "a class twice in YAML", "jay: a\njay: b\n", r"names\.yaml.*'jay'.*twice", "names.yaml"),
    names("binary", "an image as names file", b"\x89PNG\xff", r"names\.txt: not a readable text file"),
    coop("json", "a split file that is no JSON", "{", "not valid JSON"),
    coop("list", "a list", [], "expected the lists train, val and test"),
    coop("empty", "a split file without images", {"train": []}, "lists no images"),
    coop("entry", "an entry without its name", {**LISTS, "val": [["birds/jay/2.png", 0]]}, r"val\[0\]: expected \[path, label, class name\]"),
    coop("label", "a label as text", {**LISTS, "val": [["birds/jay/2.png", "0", "jay"]]}, r"val\[0\]: label '0' is not a whole number"),
    coop("name", "two names for a label", {**LISTS, "val": [["birds/jay/2.png", 0, "owl"]]}, r"val\[0\]: label 0 is 'owl', but was 'jay'"),
    coop("split", "a number in the place of a list", {**LISTS, "val": 3}, "val"),
    coop("missing", "an image that is not there", {**LISTS, "val": [["birds/jay/9.png", 0, "jay"]]}, r"no such image: .*9\.png"),
    coop("first", "a first image that is nowhere", {"train": [["x.png", 0, "jay"]]}, "its first image, x.png"),
    shard("no-label", "a sample without a label", {**GOOD, "c": {"png": b"x"}}, "sample 'c': no label"),
    shard("no-image", "a sample without an image", {**GOOD, "c": {"cls": b"jay"}}, "sample 'c': expected one image, found 0"),
    shard("two-images", "a sample with two images", {**GOOD, "c": {"png": b"x", "jpg": b"x", "cls": b"jay"}}, "sample 'c': expected one image, found 2"),
    shard("label-empty", "a sample with an empty label", {**GOOD, "c": {"png": b"x", "cls": b" "}}, r"sample 'c': its \.cls has no label"),
    shard("label-binary", "a label that is no text", {**GOOD, "c": {"png": b"x", "cls": b"\xff\xfe"}}, r"sample 'c': its \.cls cannot be read"),
    shard("label-json", "a label that is no JSON", {**GOOD, "c": {"png": b"x", "json": b"{"}}, r"sample 'c': its \.json cannot be read"),
    shard("label-large", "a label of a hundred thousand letters", {**GOOD, "c": {"png": b"x", "txt": b"x" * 100_000}}, "sample 'c': .* too large for a label"),
    task("shard-text", "text called .tar", lambda p: (p / "birds.tar").write_text("no"), "not a readable tar file", "birds.tar", ("model",)),
    task("shard-truncated", "half a tar", lambda p: cut(write_shard(p / "birds.tar", GOOD), 0.3), r"birds\.tar", "birds.tar", ("model",)),
    task("shard-gzip", "a compressed tar", compressed, "not a readable tar file|compressed", "birds.tar.gz", ("model",)),
    task("shard-missing", "shards that are not there", lambda p: None, r"birds-\{0\.\.3\}\.tar|birds-0\.tar", "birds-{0..3}.tar", ("model",)),
]  # fmt: skip

CASES = [case if case.name != "own/forbidden" else Bad(**{**vars(case), "only_users": True}) for case in CASES]
