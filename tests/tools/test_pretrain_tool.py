"""The pretraining tool: its losses, its cut vocabulary, and three steps from end to end."""

from __future__ import annotations

import io
import json
import math
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from open_clip.tokenizer import SimpleTokenizer

import pretrain_nano
from pretrain import data, evaluate, objective, train, vocab

SIZE = 16
NAMES = ("red panda", "Boeing 737-800", "crème brûlée", "fire truck")
VOCAB_SIZE = 700
CONFIG = {
    "model_cfg": {
        "embed_dim": 32,
        "vision_cfg": {"image_size": SIZE, "layers": 1, "width": 64, "patch_size": 8, "head_width": 64},
        "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    },
    "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]},
}


def draw(index: int, *, seed: int = 0, size: int = 64) -> tuple[data.Pixels, tuple[str, ...]]:
    """Stand-in for the drawing library: one flat colour an image."""
    colour = index % 3
    pixels = np.zeros((size, size, 3), dtype=np.uint8)
    pixels[..., colour] = 255 - seed
    name = ("red", "green", "blue")[colour]
    return pixels, (f"a {name} square", f"a drawing of a {name} square")


def image(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def write_corpus(path: Path, number: int) -> None:
    files = [image(index) for index in range(number)]
    offsets = np.cumsum([0, *(len(file) for file in files)])
    np.savez(path, bytes=np.frombuffer(b"".join(files), dtype=np.uint8), offsets=offsets)
    entries: list[dict[str, Any]] = [
        {"text": [NAMES[index % len(NAMES)]], "source": "things"} for index in range(number - 2)
    ]
    entries += [{"text": ["two dogs play", "dogs on grass"], "source": "flickr8k"}] * 2
    path.with_suffix(".json").write_text(json.dumps(entries), encoding="utf-8")


def write_zip(path: Path, split: str) -> None:
    samples = [[f"{split}/{index}.png", index % 2] for index in range(6)]
    content = {"data": {"train": [], "val": [], "test": []} | {split: samples}, "class_names": NAMES[:2]}
    with zipfile.ZipFile(path, "w") as stored:
        for index, (name, _) in enumerate(samples):
            stored.writestr(f"{path.stem}/images/{name}", image(100 + index))
        stored.writestr(f"{path.stem}/{path.stem}_annotations.json", json.dumps(content))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher, a corpus, an unlabelled zip, and what `prepare` makes of them."""
    folder = tmp_path_factory.mktemp("pretrain")
    teacher = folder / "teacher"
    teacher.mkdir()
    (teacher / vocab.CONFIG_NAME).write_text(json.dumps(CONFIG), encoding="utf-8")
    torch.manual_seed(0)
    model = open_clip.CLIP(**{k: CONFIG["model_cfg"][k] for k in ("embed_dim", "vision_cfg", "text_cfg")})
    save_file({name: value.half() for name, value in model.state_dict().items()}, teacher / vocab.WEIGHTS_NAME)
    write_corpus(folder / "corpus.npz", 14)
    write_zip(folder / "extra.zip", "train")
    pretrain_nano.main(
        f"prepare --out {folder / 'data'} --corpus {folder / 'corpus.npz'} --zip {folder / 'extra.zip'} "
        f"--drawn 9 --renderer {__name__}:draw --teacher {teacher} --vocab-size {VOCAB_SIZE} --mixes 20 "
        f"--size {SIZE} --workers 1".split()
    )
    return folder


@pytest.fixture(scope="module")
def trained(world: Path) -> Path:
    pretrain_nano.main(
        f"train --data {world / 'data'} --init {world / 'teacher'} --teacher {world / 'teacher'} "
        f"--out {world / 'nano'} --steps 3 --batch-size 10 --bank-texts 5 --log-every 1 --jitter 0.2 "
        "--drawn-text-weight 0.1 --device cpu".split()
    )
    return world / "nano"


def test_contrastive_loss_is_the_mean_over_true_texts() -> None:
    torch.manual_seed(1)
    image, text = (torch.nn.functional.normalize(torch.randn(5, 4), dim=-1) for _ in range(2))
    # "bus" (0) is true of images 0 to 2, whichever text was drawn for them; "red bus" (1) of image 1 alone
    meanings = torch.tensor([[0, data.PAD], [0, 1], [0, 2], [3, data.PAD], [3, 4]])
    said = torch.tensor([0, 1, 0, 3, 3])
    true = [[0, 2], [0, 1, 2], [0, 2], [3, 4], [3, 4]]
    positive = objective.positives(meanings, said)
    assert positive.tolist() == [[j in own for j in range(5)] for own in true]
    loss = objective.contrastive_loss(image, text, positive, torch.tensor(20.0))

    logits = 20.0 * image.double().numpy() @ text.double().numpy().T
    turned = [[i for i in range(5) if j in true[i]] for j in range(5)]
    expected = 0.0
    for matrix, chosen in ((logits, true), (logits.T, turned)):
        for row, own in zip(matrix, chosen, strict=True):
            log_sum = math.log(sum(math.exp(value) for value in row))
            expected -= sum(row[j] - log_sum for j in own) / len(own) / 5 / 2
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_contrastive_loss_of_distinct_texts_is_clips() -> None:
    torch.manual_seed(2)
    image, text = (torch.nn.functional.normalize(torch.randn(6, 4), dim=-1) for _ in range(2))
    loss = objective.contrastive_loss(image, text, torch.eye(6, dtype=torch.bool), torch.tensor(10.0))
    assert torch.allclose(loss, open_clip.ClipLoss()(image, text, torch.tensor(10.0)))


def test_distillation_losses_vanish_on_the_teacher_itself() -> None:
    features = torch.nn.functional.normalize(torch.randn(5, 8), dim=-1)
    logits = 30 * features @ features.T
    assert objective.cosine_distance(features, features).item() == pytest.approx(0, abs=1e-6)
    assert objective.similarity_loss(logits, logits).item() == pytest.approx(0, abs=1e-6)
    assert objective.similarity_loss(logits, logits.flip(0)).item() > 1


def test_views_keep_colours_and_range_and_can_be_repeated() -> None:
    images = torch.randint(0, 256, (4, SIZE, SIZE, 3), dtype=torch.uint8)
    flat = torch.full((4, SIZE, SIZE, 3), 51, dtype=torch.uint8)

    def views(source: torch.Tensor, jitter: float) -> torch.Tensor:
        return objective.random_views(source, (0.4, 1.0), True, jitter, torch.Generator().manual_seed(3))

    assert views(images, 0.3).shape == (4, 3, SIZE, SIZE)
    assert views(images, 0.3).min() >= 0
    assert views(images, 0.3).max() <= 1
    assert torch.equal(views(images, 0.3), views(images, 0.3))
    assert torch.allclose(views(flat, 0.0), torch.tensor(0.2))


def test_cut_tokenizer_splits_wanted_words_as_before(tmp_path: Path) -> None:
    full = SimpleTokenizer(context_length=32)
    wanted = [full.decoder[token] for name in NAMES for token in full.encode(name)]
    merges, missing = vocab.cut_merges(full, [data.Counter(wanted)], VOCAB_SIZE)
    vocab.write_merges(tmp_path / "a.gz", merges)
    vocab.write_merges(tmp_path / "b.gz", merges)
    cut = SimpleTokenizer(str(tmp_path / "a.gz"), context_length=32)

    assert missing == 0
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert cut.vocab_size == VOCAB_SIZE
    assert (cut.sot_token_id, cut.eot_token_id) == (VOCAB_SIZE - 2, VOCAB_SIZE - 1)
    for name in NAMES:
        assert [cut.decoder[t] for t in cut.encode(name)] == [full.decoder[t] for t in full.encode(name)]
        assert cut.decode(cut.encode(name)).strip() == full.decode(full.encode(name)).strip()
    other = "an unforeseen zeppelin, 漢字 and ñandú"  # any text can still be written
    assert cut.decode(cut.encode(other)) == full.decode(full.encode(other))
    assert len(cut.encode(other)) > len(full.encode(other))
    # pooling looks for the largest id: the end of the text must be it
    tokens = cut([other])
    assert tokens[0, tokens.argmax()] == cut.eot_token_id


def test_cut_vocabulary_says_when_it_is_too_small() -> None:
    full = SimpleTokenizer()
    with pytest.raises(ValueError, match="no room"):
        vocab.cut_merges(full, [], 100)
    _, missing = vocab.cut_merges(full, [data.Counter({"elephant</w>": 1})], 515)
    assert missing == 1


def test_prepared_texts_belong_to_their_images(world: Path) -> None:
    prepared = data.Prepared.load(world / "data")
    texts = json.loads((world / "data" / "texts.json").read_text())
    assert (prepared.labelled, prepared.unlabelled, prepared.drawn) == (14, 6, 9)
    assert prepared.images.shape == (29, SIZE, SIZE, 3)
    first = np.asarray(Image.open(io.BytesIO(image(1))))
    assert np.array_equal(prepared.images[1], first)

    def own(image_number: int) -> list[str]:
        begin = prepared.start[image_number]
        return [texts[row] for row in prepared.rows[begin : begin + prepared.count[image_number]]]

    assert own(1) == [template.format(NAMES[1]) for template in data.TEMPLATES]
    assert own(13) == ["two dogs play", "dogs on grass"]
    assert own(14 + 2) == list(draw(2)[1])
    assert np.array_equal(prepared.images[20 + 2], draw(2, size=SIZE)[0])
    groups = prepared.group[prepared.rows[prepared.start[1] : prepared.start[1] + prepared.count[1]]]
    assert len(set(groups.tolist())) == 1
    assert prepared.meanings[1].tolist() == [groups[0], data.PAD]
    assert not any(NAMES[0] in text for text, kind in zip(texts, prepared.kind, strict=True) if kind == data.MIX)


def test_student_starts_with_the_teachers_text_features(world: Path) -> None:
    student, _ = train.build_student(world / "teacher", world / "data" / vocab.MERGES_NAME)
    teacher = train.load_model(world / "teacher")
    prepared = data.Prepared.load(world / "data")
    names = prepared.kind == data.NAME
    with torch.no_grad():
        ours = student.eval().encode_text(torch.from_numpy(prepared.tokens[names]))
        theirs = teacher.eval().encode_text(torch.from_numpy(prepared.teacher_tokens[names]))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_three_steps_give_a_folder_that_open_clip_loads(trained: Path) -> None:
    assert sorted(path.name for path in trained.iterdir()) == [
        vocab.MERGES_NAME,
        vocab.CONFIG_NAME,
        vocab.WEIGHTS_NAME,
        "train_log.json",
    ]
    log = json.loads((trained / "train_log.json").read_text())
    assert [record["step"] for record in log["records"]] == [1, 2, 3]
    assert log["batch"] == {"real": 5, "drawn": 4, "blend": 1, "bank": 5}
    assert {"loss", "contrastive", "image", "text", "similarity", "drawn_text", "scale", "images_per_s"} <= set(
        log["records"][-1]
    )
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{trained}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{trained}", bpe_path=str(trained / vocab.MERGES_NAME))
    assert tokenizer.vocab_size == VOCAB_SIZE == model.token_embedding.num_embeddings
    assert torch.equal(tokenizer(list(NAMES)), vocab.load_tokenizer(trained)(list(NAMES)))
    pixels = preprocess(Image.open(io.BytesIO(image(0))))[None]
    assert model.encode_image(pixels).shape == model.encode_text(tokenizer(["a red panda"])).shape == (1, 32)
    with pytest.raises(FileNotFoundError):  # never a silently wrong tokenizer
        open_clip.get_tokenizer(f"local-dir:{trained}")


def test_training_goes_on_from_its_own_result_and_stops_in_time(world: Path, trained: Path) -> None:
    settings = train.Settings(steps=10**6, minutes=1e-6, batch_size=8)
    log = train.train(world / "data", trained, world / "again", settings, device=torch.device("cpu"))
    assert log["records"] == []
    before, after = (train.load_model(folder).state_dict() for folder in (trained, world / "again"))
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_training_without_teacher_on_real_images_or_drawings_alone(world: Path, share: float) -> None:
    settings = train.Settings(steps=2, batch_size=6, drawn_share=share, blend_share=0.0, log_every=1, ema=0.0)
    out = world / f"alone-{share}"
    init = world / "teacher"
    log = train.train(world / "data", init, out, settings, random_weights=True, device=torch.device("cpu"))
    assert log["batch"]["real"] == (0 if share else 6)
    assert set(log["records"][-1]) >= {"contrastive", "scale"}
    assert "image" not in log["records"][-1]


def test_merging_interpolates_the_weights(world: Path, trained: Path) -> None:
    for share, name in ((0.0, "start"), (0.5, "half"), (1.0, "end")):
        pretrain_nano.main(
            f"merge --first {world / 'teacher'} --second {trained} --share {share} --out {world / name}".split()
        )
    start, half, end = (train.load_model(world / name).state_dict() for name in ("start", "half", "end"))
    new = train.load_model(trained).state_dict()
    for name, value in new.items():
        assert torch.equal(end[name], value)
        assert torch.allclose(half[name], (start[name] + value) / 2, atol=2e-3)


def test_learning_rate_rises_and_ends_at_zero() -> None:
    rates = [train.learning_rate(progress / 100, 1.0, 0.1) for progress in range(101)]
    assert rates[10] == max(rates) == 1.0
    assert 0 < rates[0] < rates[5] < rates[10] > rates[50] > rates[100] == pytest.approx(0, abs=1e-9)


def test_evaluation_of_zips(world: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = world / "tests"
    tests.mkdir()
    write_zip(tests / "dtd.zip", "test")
    write_zip(tests / "imagenet.zip", "train")
    out = world / "figures.json"
    pretrain_nano.main(f"evaluate --model {trained} --tasks {tests} --size {SIZE} --device cpu --json {out}".split())
    figures = json.loads(out.read_text())["zips"][str(trained)]
    assert set(figures) == {"dtd", "mean"}
    assert 0 <= figures["dtd"]["mcil"] <= figures["dtd"]["mtil"] <= 100
    assert "dtd" in capsys.readouterr().out


def test_accuracy_counts_the_right_class_among_own_and_all(world: Path) -> None:
    images = np.stack([data.decode(image(index), SIZE) for index in range(4)])
    tasks = [
        evaluate.Task("one", images, np.zeros(4, dtype=np.int64), ("red panda",)),
        evaluate.Task("two", images, np.zeros(4, dtype=np.int64), ("fire truck",)),
    ]
    figures = evaluate.score(world / "teacher", tasks, "{}", torch.device("cpu"))
    assert figures["one"]["mtil"] == figures["two"]["mtil"] == 100
    assert figures["one"]["mcil"] + figures["two"]["mcil"] == 100
