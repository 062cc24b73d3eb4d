"""HTML that cannot be broken by what is put into it."""

from ballcast.report.markup import Markup, join, number, tag


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    assert tag("p", "a <b> & c", Markup("<i/>")) == "<p>a &lt;b&gt; &amp; c<i/></p>"
    assert tag("p", title='"><script>') == '<p title="&quot;&gt;&lt;script&gt;"></p>'


def test_attributes() -> None:
    made = tag("label", for_="x", class_="a", aria_label="b", viewBox="0 0 1 1", checked=True, hidden=False, id=None)
    assert made == '<label for="x" class="a" aria-label="b" viewBox="0 0 1 1" checked></label>'
    assert tag("meta", name="viewport") == '<meta name="viewport"/>'


def test_children_are_opened_and_none_is_nothing() -> None:
    assert join(["a", None, [tag("b", "c"), "<"], 2]) == "a<b>c</b>&lt;2"
    assert tag("line", x1=1 / 3, y1=2.0) == '<line x1="0.33" y1="2"/>'
    assert (number(0.1 + 0.2), number(-0.001), number(7)) == ("0.3", "-0", "7")
