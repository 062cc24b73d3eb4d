"""SVG that cannot be broken by what is put into it."""

from markupsafe import Markup

from ballcast.report.charts import element, number


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    assert element("p", "a <b> & c", Markup("<i/>")) == "<p>a &lt;b&gt; &amp; c<i/></p>"
    assert element("p", title='"><script>') == '<p title="&#34;&gt;&lt;script&gt;"/>'


def test_attributes() -> None:
    made = element("svg", "", for_="x", class_="a", aria_label="b", viewBox="0 0 1 1", id=None)
    assert made == '<svg for="x" class="a" aria-label="b" viewBox="0 0 1 1"></svg>'
    assert element("meta", name="viewport") == '<meta name="viewport"/>'


def test_children_and_numbers() -> None:
    assert element("g", "a", element("b", "c"), "<", "2") == "<g>a<b>c</b>&lt;2</g>"
    assert element("line", x1=1 / 3, y1=2.0) == '<line x1="0.33" y1="2"/>'
    assert (number(0.1 + 0.2), number(-0.001), number(7)) == ("0.3", "-0", "7")
