"""The page of a kernel: well-formed, complete in one file, every link between levels resolves."""

from html.parser import HTMLParser

import numpy as np
import pytest

import tawa
import tawa.language as tl
from tawa.tools.cli import main
from tawa.tools.samples import matmul

VOID = {"meta"}


class Reader(HTMLParser):
    """Reads a page strictly: each element is closed by its own end."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.ids = []
        self.links = {}
        self.outside = []
        self.text = {}

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.outside += [
            (tag, key) for key in ("src", "href", "xlink:href", "action") if key in given
        ]
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "li":
            self.handle_data("\n")
        if tag not in VOID:
            self.open.append((tag, given.get("id", "")))
        if at := given.get("data-at"):
            panel = next((i for _, i in reversed(self.open) if i.startswith("stages-")), "source")
            self.links.setdefault(panel, set()).add(at)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, name in self.open:
            self.text[name] = self.text.get(name, "") + data


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert reader.outside == []
    for word in ("http", "url(", "@import"):
        assert word not in text
    sources = reader.links.pop("source")
    for panel, links in reader.links.items():
        assert links <= sources, panel
    return reader, sources


def compiled_matmul():
    a = tawa.array((256, 128), "f16")
    desc = tawa.TensorDescriptor.from_tensor
    arguments = desc(a, [128, 64]), desc(a, [64, 256]), desc(a, [128, 256])
    return matmul.compile(*arguments, 128, BM=128, BN=256, BK=64)


def test_every_level_is_linked_to_the_source():
    kernel = compiled_matmul()
    reader, sources = read(kernel.html())
    for level in ("tile", "aref", "hopper", "cuda", "sass"):
        # The line of the product is in every stage; so is most of the kernel.
        assert any(at.endswith("-30") for at in reader.links[f"stages-{level}"]), level
        assert reader.text[f"stages-{level}"].split() == expected(kernel, level).split()
    assert "acc = tl.dot(a, b, acc)" in reader.text[next(at for at in sources if "-30" in at)]
    assert "arrangement=cooperative" in reader.text["facts-plan"]
    assert "49,152" in reader.text["facts-memory"]


def expected(kernel, level):
    return kernel.asm.text(level)


def test_text_of_a_user_is_escaped(tmp_path):
    @tawa.jit
    def compare(x_ptr, N: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, N))
        tl.device_assert(x < 3, "<b>&\"x\" < 3</b><script>alert('x')</script>")
        tl.store(x_ptr + tl.arange(0, N), x)

    page = compare.compile(tawa.array((64,), "f32"), N=64, debug=True).html()
    read(page)
    assert "<script>alert" not in page


def test_the_command_writes_a_page_with_a_timeline(tmp_path, capsys):
    out = tmp_path / "page.html"
    arguments = ["a_desc=f16[128,128]:128x64", "b_desc=f16[128,256]:64x256"]
    arguments += ["c_desc=f16[128,256]:128x256", "K=128", "BM=128", "BN=256", "BK=64"]
    command = ["explain", "tawa.tools.samples:matmul", "--html", str(out), "--grid", "1", "1"]
    assert main([*command, "--args", *arguments]) == 0
    assert str(out) in capsys.readouterr().out
    reader, _ = read(out.read_text())
    assert "tensor cores" in reader.text["facts-timeline"]


def test_a_notebook_shows_the_page_in_a_frame():
    shown = compiled_matmul()._repr_html_()
    assert shown.startswith("<iframe")
    assert "<h1>" not in shown
    (frame,) = [dict(a) for t, a in starts(shown) if t == "iframe"]
    read(frame["srcdoc"])


def starts(text):
    found = []

    class Starts(HTMLParser):
        def handle_starttag(self, tag, attributes):
            found.append((tag, attributes))

    Starts().feed(text)
    return found


@pytest.mark.parametrize("level", ["tile", "hopper"])
@pytest.mark.short("hopper")
def test_a_page_is_made_of_a_kernel_from_the_disk(level, tmp_path, monkeypatch):
    monkeypatch.setenv("TAWA_CACHE_DIR", str(tmp_path))
    x = np.zeros(64, np.float32)

    def fresh():
        @tawa.jit
        def scale(x_ptr, N: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, N), tl.load(x_ptr + tl.arange(0, N)) * 3)

        return scale.compile(x, N=64).html()

    first, second = (read(fresh())[0] for _ in range(2))
    assert first.links[f"stages-{level}"] == second.links[f"stages-{level}"]
