from __future__ import annotations

from tpuwatch.export.markup import Markup, element, join


def test_strings_become_text_and_markup_stays() -> None:
    assert element("p", "a < b & c", element("code", "x")) == "<p>a &lt; b &amp; c<code>x</code></p>"


def test_attributes_cannot_be_left() -> None:
    shown = element("a", href='"><script>', class_="x", data_name="y'")
    assert shown == '<a href="&quot;&gt;&lt;script&gt;" class="x" data-name="y&#x27;"></a>'


def test_elements_without_an_end() -> None:
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_could_hide_or_reorder_text_becomes_visible() -> None:
    assert join("a\x00b\x1b[31mc\u202ed\ud800e\n\tf") == "a\ufffdb\ufffd[31mc\ufffdd\ufffde\n\tf"


def test_a_join_of_markup_is_markup() -> None:
    assert join(Markup("<b>"), "<b>") == "<b>&lt;b&gt;"
    assert isinstance(join("x"), Markup)
