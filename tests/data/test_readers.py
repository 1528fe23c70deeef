"""A user's own images: every format, the tasks that they become, and the errors when something is wrong."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasso
from conftest import write_data_set
from fences import code_in
from own_images import image, png, write_coop, write_folder, write_shard, write_table
from tasso.cli import main
from tasso.config import RunConfig, from_dict
from tasso.config.task_specs import parse_tasks, without_folders
from tasso.data import Task, atlas, load_sequence
from tasso.data.images import open_packs, thread_pool
from tasso.data.images.decode import decode
from tasso.data.readers.names import natural_order, readable
from tasso.data.readers.split import held_out_count, split_class
from tasso.errors import ConfigError, DataError, RunError, TassoError
from tasso.experiments.sweep.jobs import Job
from tasso.experiments.sweep.run_jobs import check
from tasso.models.class_overlap import similar_classes, warn_of_similar_classes
from tasso.models.loading import load_clip
from tasso.training.evaluator import evaluate, evaluation_config
from tasso.training.learner import learn
from tasso.training.run_folder import RunFolder

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "own-images.md"
PETS = atlas.DOMAINS["pets"].class_names


def load(*tasks: Any, **options: Any) -> tuple[Task, ...]:
    config = from_dict({"tasks": list(tasks), **options})
    return load_sequence(config, with_reference=False).tasks


def per_class(task: Task, split: str) -> list[int]:
    return np.bincount(getattr(task, split).labels, minlength=len(task.class_names)).tolist()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "pets", "pets")


# -- every form -------------------------------------------------------------------------------------------------


def test_folder_of_classes_is_split(pets: Path) -> None:
    [task] = load(f"pets={pets}")
    assert task.name == "pets"
    assert task.class_names == tuple(sorted(PETS[:3], key=str.casefold))
    assert (per_class(task, "train"), per_class(task, "test"), len(task.val)) == ([4, 4, 4], [1, 1, 1], 0)
    assert not set(task.train.keys) & set(task.test.keys)
    assert decode(task.test, 0).shape == (16, 16, 3)
    assert load(str(pets))[0].name == "pets", "a place alone is called as its folder is"


def test_a_folder_of_tasks_is_told(pets: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It would be one task, whose classes are the tasks."""
    load(f"pets={pets}")
    assert "are tasks" not in caplog.text
    write_folder(tmp_path / "all" / "more", "pets")
    write_folder(tmp_path / "all" / "pets", "pets")
    load(f"all={tmp_path / 'all'}")
    places = f"more={tmp_path / 'all' / 'more'} pets={tmp_path / 'all' / 'pets'}"
    assert f"If these classes are tasks: --tasks {places}" in caplog.text


def test_folder_with_splits(tmp_path: Path) -> None:
    [task] = load(f"a={write_folder(tmp_path / 'a', 'pets', splits=('train', 'Validation', 'test'))}")
    assert [len(images) for images in (task.train, task.val, task.test)] == [15, 15, 15]
    [task] = load(f"b={write_folder(tmp_path / 'b', 'pets', splits=('train', 'val'))}")
    assert [len(images) for images in (task.train, task.val, task.test)] == [15, 0, 15], "val serves for testing"
    [task] = load(f"c={write_folder(tmp_path / 'c', 'pets', splits=('train',))}")
    assert [len(images) for images in (task.train, task.val, task.test)] == [12, 0, 3], "some are held back"


def test_zip_of_a_folder_is_the_same_task(pets: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for file in sorted(pets.rglob("*.png")):
            archive.write(file, file.relative_to(tmp_path))
        archive.writestr("__MACOSX/pets/x.png", b"")
    [plain], [zipped] = load(str(pets)), load(f"zipped={tmp_path / 'pets.zip'}")
    assert zipped.contents() == plain.contents()
    assert np.array_equal(decode(zipped.test, 0), decode(plain.test, 0))


def test_what_a_mac_leaves_in_folders_is_no_class(pets: Path) -> None:
    (pets / "__MACOSX" / "cats").mkdir(parents=True)
    (pets / "__MACOSX" / "cats" / "0.png").write_bytes(b"")
    [task] = load(str(pets))
    assert len(task.class_names) == 3


@pytest.mark.parametrize("zipped", [False, True])
def test_images_that_are_not_read_are_named(
    zipped: bool, pets: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = min(pets.iterdir())
    for name in ("Thumbs.db", ".hidden.heic", "notes.txt"):
        (directory / name).write_bytes(b"x")
    place = shutil.make_archive(str(tmp_path / "pets"), "zip", pets) if zipped else str(pets)
    load(place)
    assert "not read" not in caplog.text
    for name in ("a.HEIC", "b.heic", "c.svg"):
        (directory / name).write_bytes(b"x")
    place = shutil.make_archive(str(tmp_path / "pets"), "zip", pets) if zipped else str(pets)
    load(place)
    example = f"{directory.name}/a.HEIC"
    assert f"pets: 3 files are not read (.heic, .svg), such as {example}; save them as JPEG" in caplog.text


def test_links_are_followed_without_endless_loops(pets: Path) -> None:
    directory = next(pets.iterdir())
    (directory / "round").symlink_to(pets)
    [task] = load(str(pets))
    assert len(task.train) + len(task.test) == 15


@pytest.mark.parametrize(
    ("file", "header", "row"),
    [
        ("t.csv", "path,label", "{path},{label}"),
        ("t.csv", "\ufeffFile;Class", "{path};{label}"),
        ("t.tsv", "label\tfilename", "{label}\t{path}"),
        ("t.jsonl", "", '{{"image": "{path}", "label": "{label}"}}'),
    ],
)
def test_tables(pets: Path, file: str, header: str, row: str) -> None:
    files = sorted(pets.rglob("*.png"))
    rows = [row.format(path=f.relative_to(pets), label=f.parent.name) for f in files]
    [task] = load(f"t={write_table(pets / file, rows, header)}")
    [folder] = load(f"t={pets}")
    assert task.contents() == folder.contents(), "the same images give the same split"


def test_table_with_splits_and_other_columns(pets: Path, tmp_path: Path) -> None:
    files = sorted(pets.rglob("*.png"))
    rows = [f"{f.relative_to(pets)},{f.parent.name},{'testing' if f.stem == '0' else 'Train'}" for f in files]
    write_table(tmp_path / "lists" / "t.csv", rows, "where,what,part")
    (tmp_path / "more.yaml").write_text(
        "t:\n  from: lists/t.csv\n  images: pets\n  columns: {path: where, label: what, split: part}\n"
    )
    [task] = load(tmp_path / "more.yaml")
    assert (per_class(task, "train"), per_class(task, "test")) == ([4, 4, 4], [1, 1, 1])
    assert {Path(key).stem for key in task.test.keys} == {"0"}


def test_the_authors_annotations(tmp_path: Path) -> None:
    folder = write_data_set(tmp_path, "dtd", "dtd")
    for place in (folder, folder / "dtd_annotations.json"):
        [task] = load(f"mine={place}")
        assert (len(task.train), len(task.test)) == (36, 18)
        assert task.class_names == ("dtd kind 0", "dtd kind 1", "dtd kind 2"), "as they stand"


def test_split_file_of_coop(tmp_path: Path) -> None:
    file = write_coop(tmp_path / "oxford", "pets")
    for place in (file, file.parent):
        [task] = load(f"pets={place}")
        assert task.class_names == PETS[:3]
        assert [len(images) for images in (task.train, task.val, task.test)] == [6, 6, 6]


def test_shards(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for shard in range(2):
            samples = {
                f"dir/{label}-{index}": {"png": png("pets", label, 2 * shard + index), "cls": str(label).encode()}
                for label in range(3)
                for index in range(2)
            }
            write_shard(tmp_path / f"pets-{split}-{shard:03d}.tar", samples)
    (tmp_path / "names.txt").write_text("\n".join(PETS[:3]))
    place = {"name": "pets", "from": str(tmp_path / "pets-*.tar"), "names": str(tmp_path / "names.txt")}
    [task] = load(place)
    assert task.class_names == PETS[:3]
    assert (per_class(task, "train"), per_class(task, "test")) == ([4, 4, 4], [4, 4, 4])
    number = task.train.labels.tolist().index(1)
    assert np.array_equal(decode(task.train, number), np.asarray(image("pets", 1, 0)))
    [braces] = load({**place, "from": str(tmp_path / "pets-train-{000..001}.tar")})
    assert len(braces.train) + len(braces.test) == 12
    with pytest.raises(DataError, match=r"classes have numbers and no names \(0, 1, 2 …\)"):
        load({k: v for k, v in place.items() if k != "names"})


def test_shards_with_labels_in_json_are_packed(tmp_path: Path) -> None:
    samples = {
        f"{label}{index}": {"PNG": png("pets", label, index), "json": json.dumps({"label": PETS[label]}).encode()}
        for label in range(2)
        for index in range(3)
    }
    write_shard(tmp_path / "all.tar", samples)
    config = from_dict({"tasks": str(tmp_path / "all.tar"), "pack_dir": str(tmp_path / "packs")})
    sequence = load_sequence(config, with_reference=False)
    packs = open_packs(config, thread_pool(1))
    assert packs is not None
    packs.packed(sequence)
    assert [report.images for report in packs.reports] == [2, 4]


def test_data_set_of_the_hub(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["Tabby_Cat", "Dog"])
    features = datasets.Features({"image": datasets.Image(), "label": names, "id": datasets.Value("int64")})

    def part(first: int) -> Any:
        stored = [{"bytes": png("pets", i % 2, first + i), "path": None} for i in range(6)]
        rows = [{"image": image, "label": i % 2, "id": i} for i, image in enumerate(stored)]
        return datasets.Dataset.from_list(rows, features=features)

    datasets.DatasetDict({"train": part(0), "test": part(10)}).save_to_disk(str(tmp_path / "both"))
    [task] = load(f"hub=hf:{tmp_path / 'both'}")
    assert task.class_names == ("Tabby Cat", "Dog")
    assert (per_class(task, "train"), per_class(task, "test")) == ([3, 3], [3, 3])
    assert np.array_equal(decode(task.test, 1), np.asarray(image("pets", 1, 11)))
    assert len(set(task.train.source.stamps(task.train.keys))) == 6  # type: ignore[attr-defined]
    part(0).save_to_disk(str(tmp_path / "one"))
    [task] = load(f"hub=hf:{tmp_path / 'one'}")
    assert (per_class(task, "train"), per_class(task, "test")) == ([2, 2], [1, 1])
    with pytest.raises(DataError, match=r"no column 'kind'\. Columns: image, label, id"):
        load({"name": "hub", "from": f"hf:{tmp_path / 'one'}", "columns": {"label": "kind"}})


def test_without_the_library_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"task 'food101': hf:food101: needs .*pip install '"):
        load("hf:food101")


# -- names, prompts, splits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["001.Black_footed_Albatross", "002.Laysan_Albatross"], ["Black footed Albatross", "Laysan Albatross"]),
        (["AnnualCrop", "HerbaceousVegetation", "SeaLake"], ["Annual Crop", "Herbaceous Vegetation", "Sea Lake"]),
        (["747-400", "A380"], ["747-400", "A380"]),
        (["n02085620-Chihuahua", "n02085782-Japanese_spaniel"], ["Chihuahua", "Japanese spaniel"]),
        (["iPhone", "McDonald", "DSLR", "USBStick"], ["iPhone", "McDonald", "DSLR", "USB Stick"]),
        (["1-a", "2-a"], ["1-a", "2-a"]),  # without numbers they would be the same
    ],
)
def test_directory_names_become_readable(labels: list[str], names: list[str]) -> None:
    assert readable(labels) == names


def test_labels_are_in_natural_order() -> None:
    assert natural_order(["10", "9", "b2", "b10", "A", "9"]) == ["9", "10", "A", "b2", "b10"]


@pytest.mark.parametrize(
    ("file", "content", "names"),
    [
        ("n.txt", "one\ntwo\nthree\n", ["one", "two", "three"]),
        ("n.csv", "a,first\nc,third\n", ["first", "b", "third"]),
        ("n.tsv", "b\tsecond, of three\n", ["a", "second, of three", "c"]),
        ("n.json", '{"a": "first"}', ["first", "b", "c"]),
        ("n.yaml", "[x, y, z]", ["x", "y", "z"]),
    ],
)
def test_names_files(tmp_path: Path, file: str, content: str, names: list[str]) -> None:
    write_folder(tmp_path / "p", "pets", name=lambda n: "abc"[PETS.index(n)])
    (tmp_path / file).write_text(content)
    [task] = load({"name": "p", "from": str(tmp_path / "p"), "names": str(tmp_path / file)})
    assert list(task.class_names) == names


def test_each_task_has_its_own_prompts(tiny_model: str, tmp_path: Path, own: dict[str, Any]) -> None:
    (tmp_path / "prompts.txt").write_text("a pet called {}.\nmy {}\n")
    own["tasks"][0] = {"name": "pets", "from": str(tmp_path / "pets"), "template": str(tmp_path / "prompts.txt")}
    own["head"] = "texts"
    for method in ("finetune", {"name": "icarl", "labelled_replay": True, "teacher": "pretrained", "memory": 9}):
        out = str(tmp_path / f"run-{method if isinstance(method, str) else method['name']}")
        results = learn(from_dict({**own, "method": method, "out": out}))
        assert results["templates"] == {"pets": ["a pet called {}.", "my {}"]}
        found = tasso.evaluate(run=out)
        assert found["mcil"] == results["mcil"]["matrix"][-1]
    # What is compared with images is the mean of both prompts, also when a run is used later.
    run = tasso.load(tmp_path / "run-finetune")
    (tmp_path / "prompts.txt").unlink()
    guess = run.classify(image("pets", 0, 0), task="pets", top=3)[0]
    clip = run.clip
    import torch

    from tasso.data.images.transforms import normalise, resize_and_centre

    pixels = torch.from_numpy(np.array(image("pets", 0, 0))).permute(2, 0, 1)[None]
    seen = clip.encode_images(normalise(resize_and_centre(pixels, clip.preprocess), clip.preprocess))
    texts = clip.encode_classes(results["class_names"]["pets"], ("a pet called {}.", "my {}"))
    expected = (clip.logit_scale * seen @ texts.mT).softmax(-1)[0]
    assert [g.probability for g in guess] == pytest.approx(sorted(expected.tolist(), reverse=True), rel=1e-5)


@given(st.integers(2, 200), st.floats(0.01, 0.99))
def test_both_parts_of_a_class_have_an_image(images: int, share: float) -> None:
    test = held_out_count(images, share)
    assert 1 <= test <= images - 1
    assert abs(test - share * images) <= 1.0


def test_a_single_image_is_learned_and_not_tested() -> None:
    assert held_out_count(1, 0.5) == 0


@given(st.sets(st.text("abc", min_size=1), min_size=2, max_size=12), st.integers(0, 9), st.randoms())
def test_the_split_depends_on_images_label_and_seed_alone(keys: set[str], seed: int, random: Any) -> None:
    ordered, shuffled = sorted(keys), sorted(keys)
    random.shuffle(shuffled)
    parts = [{order[place] for place in split_class(order, "x", 0.3, seed)[1]} for order in (ordered, shuffled)]
    assert parts[0] == parts[1]
    train, test = split_class(ordered, "x", 0.3, seed)
    assert sorted(train + test) == list(range(len(ordered)))


def test_shots_are_drawn_by_seed_for_all_methods(pets: Path) -> None:
    chosen = {seed: load(str(pets), shots=2, seed=seed)[0].train.keys for seed in range(6)}
    assert all(len(keys) == 6 for keys in chosen.values())
    assert len(set(chosen.values())) > 1
    assert load(str(pets), shots=2, seed=3, method="finetune")[0].train.keys == chosen[3]
    assert per_class(load(str(pets), shots=99)[0], "train") == [4, 4, 4]
    tests = {load(str(pets), shots=2, seed=seed)[0].test.keys for seed in range(6)}
    assert len(tests) == 1, "the test images stay the same"


# -- what is given, in every way -------------------------------------------------------------------------------------


def test_tasks_are_one_form_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("b: ./b.csv\nc: {from: hf:./saved, template: 'a {}'}\n")
    written = parse_tasks([["a=x/a"], str(tmp_path / "more.yaml"), "d=atlas:food", "hf:owner/set"])
    assert written == [
        {"name": "a", "from": "x/a"},
        {"name": "b", "from": str(tmp_path / "b.csv")},
        {"name": "c", "from": f"hf:{tmp_path / 'saved'}", "template": "a {}"},
        {"name": "d", "from": "atlas:food"},
        {"name": "set", "from": "hf:owner/set"},
    ]
    assert parse_tasks(written) == written
    assert parse_tasks({"a": "x/a", "b": {"from": Path("y")}}) == parse_tasks(["a=x/a", "b=y"])
    assert [place["from"] for place in without_folders(written)] == [
        "a",
        "b.csv",
        "saved",
        "atlas:food",
        "hf:owner/set",
    ]


@pytest.mark.parametrize(
    ("tasks", "complaint"),
    [
        ([], "tasks: none given"),
        (3, "expected NAME=PLACE"),
        (["a=x", "A=y"], r"two tasks are called 'A' \(x and y\)"),
        (["a b=x"], r"'a b' cannot be the name of a task \(it has a space\)"),
        (["b/formen blå"], r"'formen blå' .*\(it has a space\): letters.*Give .* another name: NAME=\"b/formen blå\""),
        (["S1=x"], "'S1' cannot be the name of a task"),
        (["a="], "a: from: expected a path or name, not ''"),
        ([{"name": "a", "from": "x", "nmaes": "y"}], "a: unknown key 'nmaes'"),
        ({"a": {"names": "x"}}, "a: from: expected a path or name, not None"),
        ({"a": {"from": "x", "columns": {"pth": "y"}}}, "a: columns: expected a mapping of path, label, split"),
        (["absent.yaml"], "absent.yaml: no such file"),
    ],
)
def test_malformed_lists_of_tasks(tasks: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        from_dict({"tasks": tasks})


def test_own_tasks_and_benchmarks(pets: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"atlas has tasks of its own.*NAME=atlas:TASK"):
        load(str(pets), benchmark="atlas")
    with pytest.raises(ConfigError, match="tasks: atlas has no task 'fod'"):
        load("x=atlas:fod")
    with pytest.raises(ConfigError, match="data_root: mtil-mini:dtd needs --data-root"):
        load("x=mtil-mini:dtd")
    drawn, mine = load("snacks=atlas:food", str(pets), benchmark="mixed")
    assert (drawn.name, len(drawn.train), mine.name) == ("snacks", 768, "pets")
    assert [task.name for task in load("snacks=atlas:food", str(pets), sequence="S2")] == ["pets", "snacks"]


def test_the_name_of_a_run_does_not_say_where_images_lie() -> None:
    names = [
        Job({"tasks": tasks, "reference": reference}).name
        for tasks, reference in ((["a=/x/pets"], "/x/any"), ({"a": "y/pets"}, "any"), (["a=/x/cats"], "/x/any"))
    ]
    assert names[0] == names[1] != names[2]
    assert Job({"steps": 60}).name == "tasso-S1-1102-rank=72-steps=60-lr=0.0001", "no tasks in other names"
    odd = {"steps": 60, "template": "odd {} one"}
    assert Job(odd).name == "tasso-S1-1102-rank=72-steps=60-lr=0.0001~" + Job(odd).name[-10:]


def test_reference_images(pets: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def reference(**options: Any) -> Any:
        return load_sequence(from_dict({"tasks": [str(pets)], **options})).reference

    with pytest.raises(ConfigError, match="reference: 'nowhere' is neither a folder nor a benchmark"):
        reference(reference="nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"reference: .*empty: no images here"):
        reference(reference=str(tmp_path / "empty"))
    write_folder(tmp_path / "any" / "deep", "land")
    image("land", 0, 9).save(tmp_path / "any" / "loose.png")
    assert len(reference(reference=str(tmp_path / "any"))) == 16
    assert len(reference(reference=str(tmp_path / "any"), reference_images=4)) == 4
    with caplog.at_level(logging.WARNING):
        assert reference().checksum() == reference(reference="atlas").checksum(), "what own tasks have by default"
    assert "drawn by code (atlas)" in caplog.text
    # A benchmark may have other reference images too.
    assert len(load_sequence(from_dict({"reference": str(tmp_path / "any"), "limit_tasks": 1})).reference or ()) == 16


def test_same_and_similar_classes_are_named(tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, classes in (("a", ["Red_car", "dog"]), ("b", ["red-car", "cat"])):
        for number, label in enumerate(classes):
            (tmp_path / name / label).mkdir(parents=True)
            for index in range(2):
                image("pets", number, index).save(tmp_path / name / label / f"{index}.png")
    tasks = load(f"a={tmp_path / 'a'}", f"b={tmp_path / 'b'}")
    clip = load_clip(tiny_model)
    texts = [clip.class_embeddings(task.class_names, ("{}",)) for task in tasks]
    cosines = (texts[0] @ texts[1].mT).flatten().tolist()
    everything = similar_classes(clip, tasks, ("{}",), -1.0)
    assert sorted(pair.cosine for pair in everything) == pytest.approx(sorted(cosines), abs=1e-6)
    assert everything[0].same_name
    assert not any(pair.same_name for pair in everything[1:])
    highest = max(pair.cosine for pair in everything[1:])
    assert len(similar_classes(clip, tasks, ("{}",), highest + 1e-4)) == 1, "the same name counts at any distance"
    with caplog.at_level(logging.WARNING):
        warn_of_similar_classes(clip, tasks, ("{}",))
    assert "have the same name: 'Red car' (a) and 'red-car' (b)" in caplog.text


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tiny_model: str, tmp_path: Path) -> dict[str, Any]:
    """Options of a run on two folders that takes a second."""
    for domain in ("pets", "food", "land"):
        write_folder(tmp_path / domain, domain)
    return {
        "tasks": [f"pets={tmp_path / 'pets'}", f"food={tmp_path / 'food'}"], "reference": str(tmp_path / "land"),
        "model": tiny_model, "steps": 2, "batch_size": 4, "reference_batch_size": 4, "lr": 1e-3,
        "method": {"name": "tasso", "rank": 6}, "device": "cpu", "out": str(tmp_path / "run"),
    }  # fmt: skip


def test_a_run_on_own_tasks_is_like_any_other(own: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = tasso.learn(**own)
    assert (run.results["benchmark"], run.tasks) == ("own", ["pets", "food"])
    data = run.results["data"]
    assert data["tasks"]["pets"] | {"checksum": ""} == {"classes": 3, "train": 12, "val": 0, "test": 3, "checksum": ""}
    assert data["reference"]["images"] == 15
    assert (
        evaluate(evaluation_config({}, Path(own["out"]), "test"), Path(own["out"]))["mtil"]
        == (run.results["mtil"]["matrix"][-1])
    )
    other = evaluate(evaluation_config({"tasks": own["tasks"][1:]}, Path(own["out"]), "test"), Path(own["out"]))
    assert other["tasks"] == ["food"]
    packed = tasso.learn(**{**own, "pack_dir": f"{own['out']}-packs", "out": f"{own['out']}-packed"})
    assert packed.results["mtil"] == run.results["mtil"], "images of one size are packed as they are"
    monkeypatch.setattr("tasso.training.learner.Learner", None)
    assert tasso.learn(**own).results == run.results, "a finished run is not repeated"


def test_sweeps_and_packs_take_own_tasks(
    own: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tasks", *own["tasks"], "--benchmark", "mine"]
    sweep = ["sweep", *words, "--reference", own["reference"], "--methods", "tasso,finetune", "--sequences", "S1,S2"]
    main([*sweep, "--out", str(tmp_path / "sweep"), "--dry-run"])
    names = capsys.readouterr().out.split()
    assert len(names) == len(set(names)) == 4
    check([Job({"tasks": own["tasks"], "sequence": "S2"})])
    with pytest.raises(ConfigError, match=r"sequence: S3 does not exist, there are S1 … S2"):
        check([Job({"tasks": own["tasks"], "sequence": "S3"})])
    main(["data", "pack", *words, "--pack-dir", str(tmp_path / "packs")])
    assert len(capsys.readouterr().out.splitlines()) == 5
    main(["eval", *words, "--model", own["model"], "--json"])
    assert json.loads(capsys.readouterr().out)["tasks"] == ["pets", "food"]


def test_changed_data_are_noticed(own: dict[str, Any], tmp_path: Path) -> None:
    results = learn(from_dict(own))
    unfinished = {**results, "finished": False}
    for setting in ("mtil", "mcil"):
        unfinished[setting] = {**results[setting], "matrix": results[setting]["matrix"][:1], "metrics": None}
    unfinished["per_task"] = results["per_task"][:1]
    RunFolder(Path(own["out"])).write_results(unfinished)
    [first, *_] = sorted((tmp_path / "pets").rglob("*.png"))
    added = first.with_name("more.png")
    shutil.copy(first, added)
    with pytest.raises(RunError, match=r"the data of task 'pets' have changed: 3 classes, 12 training and 3 test.*now"):
        learn(from_dict(own))
    first.unlink()
    with pytest.raises(
        RunError, match=r"'pets' have changed: as many images .* but other files, labels, class names or prompts"
    ):
        learn(from_dict(own))
    added.rename(first)
    [reference, *_] = sorted((tmp_path / "land").rglob("*.png"))
    kept = reference.read_bytes()
    reference.unlink()
    with pytest.raises(RunError, match=r"the reference images are not those .*\(15 then, 14 now\)"):
        learn(from_dict(own))
    reference.write_bytes(kept)
    again = learn(from_dict(own))
    assert (again["mtil"], again["mcil"]) == (results["mtil"], results["mcil"])


def test_moved_images_are_the_same_data(own: dict[str, Any], tmp_path: Path) -> None:
    results = learn(from_dict(own))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pets").rename(tmp_path / "elsewhere" / "animals")
    moved = [f"pets={tmp_path / 'elsewhere' / 'animals'}", own["tasks"][1]]
    assert learn(from_dict({**own, "tasks": moved}))["mtil"] == results["mtil"]
    assert RunFolder(Path(own["out"])).read_config().tasks == parse_tasks(moved), "who reads the folder finds them"
    write_folder(tmp_path / "pets", "flowers")
    with pytest.raises(RunError, match="the data of task 'pets' have changed"):
        learn(from_dict({**own, "tasks": [f"pets={tmp_path / 'pets'}", own["tasks"][1]]}))
    with pytest.raises(RunError, match=r"was started with tasks = \['pets', 'food'\], not \['food'\]"):
        learn(from_dict({**own, "tasks": own["tasks"][1:]}))


# -- what is wrong is named, before anything is trained ---------------------------------------------------------------


Spoil = Callable[[Path], Any]


def _without_images(pets: Path) -> Any:
    (pets / "Empty").mkdir()
    return str(pets)


def _broken_link(pets: Path) -> Any:
    (pets / "cats").symlink_to(pets.parent / "gone")
    return str(pets)


def _with_other_files(pets: Path) -> Any:
    (pets / "Raw").mkdir()
    (pets / "Raw" / "x.heic").write_text("")
    return str(pets)


def _loose(pets: Path) -> Any:
    image("pets", 0, 0).save(pets / "loose.JPG")
    return str(pets)


def _one_class(pets: Path) -> Any:
    for directory in sorted(pets.iterdir())[1:]:
        shutil.rmtree(directory)
    return str(pets)


def _single_images(pets: Path) -> Any:
    for file in pets.rglob("*.png"):
        if file.stem != "0":
            file.unlink()
    return str(pets)


def _only_test(pets: Path) -> Any:
    return str(write_folder(pets.parent / "tested", "pets", splits=("test",)))


def _unlearned(pets: Path) -> Any:
    folder = write_folder(pets.parent / "both", "pets", splits=("train", "test"))
    shutil.rmtree(sorted((folder / "train").iterdir())[0])
    return str(folder)


def _same_names(pets: Path) -> Any:
    first, second, _ = sorted(pets.iterdir())
    first.rename(pets / "red_dog")
    second.rename(pets / "RedDog")
    return str(pets)


def _file(name: str, content: str | bytes) -> Spoil:
    def write(pets: Path) -> Any:
        file = pets.parent / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return write


def _rows(*rows: str, header: str = "path,label") -> Spoil:
    """A table beside three good images: 0.png, 1.png and 2.png."""

    def write(pets: Path) -> Any:
        folder = pets.parent / "table"
        folder.mkdir()
        for index in range(3):
            image("pets", 0, index).save(folder / f"{index}.png")
        return str(write_table(folder / "t.csv", list(rows), header))

    return write


def _names(content: str | bytes | None, name: str = "names.txt") -> Spoil:
    def write(pets: Path) -> Any:
        if content is not None:
            _file(name, content)(pets)
        return {"name": "t", "from": str(pets), "names": str(pets.parent / name)}

    return write


def _place(**options: Any) -> Spoil:
    return lambda pets: {"name": "t", "from": str(pets), **options}


def _coop(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    def write(pets: Path) -> Any:
        file = write_coop(pets.parent / "coop", "pets")
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))
        return str(file)

    return write


def _shard(samples: dict[str, dict[str, bytes]], name: str = "t.tar") -> Spoil:
    return lambda pets: str(write_shard(pets.parent / name, samples))


BAD: dict[str, tuple[Spoil, str]] = {
    "absent": (lambda pets: str(pets / "nowhere"), r"no such file or folder: .*nowhere"),
    "empty class folder": (_without_images, r"Empty: no images here; tasso reads .*\.jpg.*put images of"),
    "class folder that is a broken link": (_broken_link, r"cats: a link to .*gone, which is not there; correct the"),
    "class folder of other files": (_with_other_files, r"Raw: no images here \(there are files with \.heic\)"),
    "loose image": (_loose, r"loose\.JPG lies in no class directory \(1 such images\); expected one directory"),
    "one class": (_one_class, "only one class .*there is nothing to tell apart"),
    "single images": (_single_images, "no class has two images, so there is nothing to test with"),
    "no training images": (_only_test, r"no images to train on \(there is test\); expected a split 'train'"),
    "unlearned class": (_unlearned, "has test images, but none to train on.*add some or remove it"),
    "same names": (_same_names, "classes 'red_dog' and 'RedDog' are both called"),
    "empty folder": (lambda pets: str((pets.parent / "x").mkdir() or pets.parent / "x"), "x: no images here"),
    "unknown file": (_file("x.docx", ""), r"x\.docx: unknown kind of file\. tasso reads a folder"),
    "no zip": (_file("x.zip", "no zip"), r"x\.zip: not a readable zip file"),
    "some json": (_file("x.json", "{}"), r"x\.json: expected a name that ends in _annotations\.json"),
    "images folder": (_place(images="/nowhere"), "images: no such folder: /nowhere"),
    "prompts": (_place(template="a photo"), r"template: .*a photo' has no \{\} for the class name"),
    # tables
    "no path column": (_rows("0.png,a", header="x,label"), r"t\.csv: no column 'path'\. Columns: x, label\. Call"),
    "no label column": (_rows("0.png,a", header="path,x"), r"no column 'label'.*columns: \{label: path\}"),
    "empty table": (_file("x.csv", ""), r"x\.csv: no column 'path'\. Columns: none"),
    "no rows": (_rows(), r"t\.csv: has no rows"),
    "too few cells": (_rows("0.png,a", "1.png"), r"t\.csv, line 3: 1 cells, but the first line names 2 columns"),
    "open quote": (_rows('"0.png,a'), r"t\.csv, line 2: cannot be read: unexpected end of data"),
    "empty label": (_rows("0.png,a", "1.png, "), r"t\.csv, line 3: label is empty|line 3: label is ' '"),
    "no such image": (_rows("0.png,a", "9.png,b", "8.png,b"), r"t\.csv, line 3: no such image: .*9\.png \(2 such"),
    "long path": (_rows("0.png,a", f"{'x' * 5000},b"), r"t\.csv, line 3: no such image"),
    "twice": (_rows("0.png,a", "1.png,b", "0.png,b"), r"t\.csv, line 4: 0\.png is in line 2 already"),
    "no such split": (
        _rows("0.png,a,train", "1.png,b,tset", header="path,label,split"),
        r"t\.csv, line 3: no such split: 'tset'\. There are train, val and test",
    ),
    "empty split": (_rows("0.png,a,", header="path,label,split"), r"t\.csv, line 2: split is empty"),
    "not text": (_file("x.csv", b"path,label\n\xff\xfe,\x00"), r"x\.csv: not a readable text file"),
    "bad json line": (_file("x.jsonl", '{"path": 1\n'), r"x\.jsonl, line 1: not valid JSON"),
    "json list": (_file("x.jsonl", "[1]\n"), r"x\.jsonl, line 1: expected an object"),
    "json label": (_file("x.jsonl", '{"path": "a.png", "label": [1]}\n'), r"x\.jsonl, line 1: label is \[1\]"),
    "other columns": (
        lambda pets: {"name": "t", "from": _rows("0.png,a")(pets), "columns": {"label": "kind"}},
        r"no column 'kind'\. Columns: path, label",
    ),
    # names files
    "no names file": (_names(None), r"names: .*names\.txt: no such file"),
    "unreadable names": (_names(b"\xff\xfe\x00"), r"names: .*names\.txt: not a readable text file"),
    "empty names": (_names("\n"), r"names\.txt is empty"),
    "too few names": (_names("one\ntwo\n"), r"names\.txt has 2 names for 3 classes"),
    "stranger": (_names("a cat,Cat\n"), r"names\.txt, line 1: no class 'a cat'\. Classes: "),
    "half a pair": (_names("x,\n"), r"names\.txt, line 1: expected a label and a name, found 'x,'"),
    "named twice": (_names("x,a\nx,b\n"), r"names\.txt, line 2: 'x' has a name already \(.*line 1\)"),
    "broken names": (_names("{", "n.json"), r"n\.json: not valid JSON"),
    "odd names": (_names("[1, 2, 3]", "n.json"), r"n\.json: 0: expected a name, not 1"),
    "number of names": (_names("7", "n.yaml"), r"n\.yaml: expected a mapping of labels to names, or a list"),
    # split files of CoOp
    "no lists": (_coop(lambda d: d.pop("train")), r"split_zhou_pets\.json: expected the lists train, val and test"),
    "short entry": (_coop(lambda d: d["val"].append(["x.png", 0])), r"val\[6\]: expected \[path, label, class name\]"),
    "label as text": (_coop(lambda d: d["test"].append(["x.png", "0", "a"])), r"test\[6\]: label '0' is not a whole"),
    "two names": (_coop(lambda d: d["test"][0].__setitem__(2, "other")), r"test\[0\]: label 0 is 'other', but was"),
    "image gone": (_coop(lambda d: d["test"][0].__setitem__(0, "no.png")), r"no such image: .*no\.png \(1 are"),
    "images nowhere": (_coop(lambda d: d["train"][0].__setitem__(0, "no.png")), r"its first image, no\.png, lies"),
    # shards
    "no shard": (lambda pets: str(pets / "x-*.tar"), r"x-\*\.tar: no such shards"),
    "missing shard": (lambda pets: str(pets / "x-{0..1}.tar"), r"x-0\.tar: no such shard"),
    "compressed": (_file("x.tar.gz", ""), r"x\.tar\.gz: a compressed tar cannot be read image by image"),
    "no tar": (_file("x.tar", b"no tar" * 200), r"x\.tar: not a readable tar file"),
    "no label": (_shard({"a": {"png": b""}}), r"t\.tar: sample 'a': no label; expected \.cls, \.txt or \.json"),
    "no image": (_shard({"a": {"cls": b"0"}}), r"t\.tar: sample 'a': expected one image, found 0"),
    "json without label": (_shard({"a": {"png": b"", "json": b"{}"}}), r"sample 'a': its \.json has no label"),
    "both in a name": (_shard({}, "train-test.tar"), r"train-test\.tar: its name has several of train, val and test"),
    "no samples": (_shard({}), r"t\.tar: there are no samples in it"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_what_is_wrong_is_named(kind: str, pets: Path) -> None:
    spoil, complaint = BAD[kind]
    place = spoil(pets)
    place = place if isinstance(place, dict) else {"name": "t", "from": place}
    with pytest.raises(TassoError, match=rf"^task 't': (?s:.*){complaint}"):
        load(place)


def test_nothing_is_written_when_something_is_wrong(own: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "food" / "Empty").mkdir()
    with pytest.raises(DataError, match=r"task 'food': .*Empty: no images here"):
        learn(from_dict(own))
    assert not Path(own["out"]).exists()


def test_classes_without_test_images_are_named(pets: Path, caplog: pytest.LogCaptureFixture) -> None:
    for file in sorted(pets.iterdir())[0].glob("[1-9].png"):
        file.unlink()
    with caplog.at_level(logging.WARNING):
        [task] = load(str(pets))
    assert (per_class(task, "train"), per_class(task, "test")) == ([1, 4, 4], [0, 1, 1])
    assert "no test images in 1 of 3 classes" in caplog.text


def test_the_guides_file_of_tasks_is_understood(tmp_path: Path) -> None:
    [file] = code_in(GUIDE.read_text(encoding="utf-8"), "yaml")
    path = tmp_path / "more.yaml"
    path.write_text(file)
    assert [place["name"] for place in parse_tasks(str(path))] == ["pets", "cars", "birds", "signs"]


def test_options_are_checked() -> None:
    for options, complaint in (
        ({"shots": 0}, "shots: must be at least 1"),
        ({"test_share": 1.1}, "test_share: must lie"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            RunConfig(**options)
