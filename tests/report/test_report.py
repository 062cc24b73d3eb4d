"""The report: whole, alone, unbroken by what it is given, and good in a real browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import PHONE, open_browser
from synthetic import make_clips

from ballcast.core.errors import BallcastWarning
from ballcast.core.events import Clip, Event, Prediction
from ballcast.core.palette import DARK, LIGHT, rgb
from ballcast.metrics.average_precision import score
from ballcast.metrics.bootstrap import bootstrap
from ballcast.report.film_strip import Footage, footage_in
from ballcast.report.report import History, Report, render, write_report
from tests.video.conftest import make_video

EVIL = '<img src=x onerror="alert(1)">'


def predictions(clips: list[Clip], seed: int = 0) -> dict[str, list[Prediction]]:
    """Right for half of the events, up to half a second off."""
    rng = np.random.default_rng(seed)
    return {
        clip.name: [
            Prediction(
                e.label, int(np.clip(e.position_ms + rng.integers(-500, 500), 30_000, 34_999)), float(rng.random())
            )
            for e in clip.anticipation
            if rng.random() < 0.5
        ]
        for clip in clips
    }


def make(title: str = "A report", **more: object) -> Report:
    clips = make_clips(40, seed=1)
    made = predictions(clips)
    return Report(title, clips, made, score(clips, made), **more)  # type: ignore[arg-type]


class Tags(HTMLParser):
    """Every element that is opened is closed again, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = render(make(others={"another": make().score}, history=History([3, 2, 1], [0.1, float("nan"), 0.2], 3)))
    found = Tags(page)
    for heading in ("Scores", "Training", "Action by action", "Precision and recall", "Calibration and timing",
                    "Confusion between actions", "Best and worst clips"):  # fmt: skip
        assert f"<h2>{heading}</h2>" in page
    assert "17.90" in page  # the paper's
    assert not re.search(r"https?://|@import|url\(|<link|<iframe", page)
    for _, attributes in found.seen:
        source = attributes.get("src")
        assert source is None or source.startswith("data:image/")
    assert all(attributes.get("alt") for tag, attributes in found.seen if tag == "img")
    charts = page.count('class="chart"')
    assert charts == 2 + 1 + 10 + 2
    assert page.count('role="img"') == charts
    assert page.count("<title>") == 1 + charts  # each says what it shows


def test_html_in_names_stays_text() -> None:
    clip = Clip(EVIL, (Event("PASS", 29_000),), (Event("PASS", 31_000),))
    made = {EVIL: [Prediction("PASS", 31_000, 0.5)]}
    page = render(Report(EVIL, [clip], made, score([clip], made), name=EVIL, facts={EVIL: EVIL}))
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=&#34;") >= 5
    Tags(page)


@pytest.mark.parametrize(
    ("predicted", "words"),
    [
        ([], "there are no predictions"),
        ([Prediction("SHOT", 31_000, 0.5)], "no anticipated action came"),
        ([Prediction("PASS", 31_000, 7.5)], "The confidences are not probabilities"),
    ],
)
def test_missing_figures_have_a_reason(predicted: list[Prediction], words: str) -> None:
    clips = [Clip("clip_1", (), (Event("PASS", 31_000),))]
    page = render(Report("r", clips, {"clip_1": predicted}, score(clips, {"clip_1": predicted})))
    assert words in page
    Tags(page)


def test_no_events_at_all() -> None:
    clips = [Clip("clip_1")]
    page = render(Report("r", clips, {}, score(clips, {})))
    assert "Best and worst" not in page
    assert "nan" not in page.lower()


def test_the_film_shows_the_video_and_what_it_lacks(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", range(750), size=(32, 64))
    longer = make_video(tmp_path / "b.mp4", range(875), size=(32, 64))
    clips = [Clip("a", (), (Event("PASS", 31_000),)), Clip("b", (), (Event("SHOT", 33_000),))]
    made = {"a": [Prediction("PASS", 31_200, 0.5)], "b": [Prediction("OUT", 33_500, 0.25)]}
    told: list[tuple[int, int]] = []
    report = Report("r", clips, made, score(clips, made), footage={"a": Footage(video), "b": Footage(longer, 0)})
    page = render(report, lambda done, total: told.append((done, total)))
    assert page.count("data:image/webp;base64,") == 5 + 10  # five seconds before now; and, if it is longer, five after
    assert page.count("tile unseen") == 5
    assert "0.5 s before the prediction" in page
    assert "pass 50 %, in 1.2 s" in page
    assert "came 0.2 s earlier" in page
    assert "shot came instead, in 3.0 s" in page
    assert told == [(1, 2), (2, 2)]


def test_a_damaged_video_costs_its_pictures_and_no_more(tmp_path: Path) -> None:
    good, cut = (make_video(tmp_path / f"{name}.mp4", range(750), size=(32, 64)) for name in ("a", "b"))
    cut.write_bytes(cut.read_bytes()[:2000])
    clips = [Clip(name, (), (Event("PASS", 31_000),)) for name in ("a", "b")]
    made = {name: [Prediction("PASS", 31_200, 0.5)] for name in ("a", "b")}
    report = Report("r", clips, made, score(clips, made), footage={"a": Footage(good), "b": Footage(cut)})
    with pytest.warns(BallcastWarning, match=r"b\.mp4: .*; the report shows no pictures of it$") as told:
        page = render(report)
    assert len(told) == 1
    assert page.count("data:image/webp") == 5
    assert page.count("pass 50 %, in 1.2 s") == 2
    assert "No pictures: b.mp4 cannot be read." in page
    Tags(page)


def test_nothing_is_called_seen_that_was_not() -> None:
    clips = [Clip(f"clip_{n}", (), (Event("PASS", 31_000),)) for n in range(8)]
    made = {"clip_3": [Prediction("PASS", 31_000, 0.5)], "clip_5": [Prediction("SHOT", 31_000, 0.5)]}
    page = render(Report("r", clips, made, score(clips, made)))
    seen, unseen = page.split("<h3>Seen coming</h3>")[1].split("<h3>Not seen coming</h3>")
    assert "clip_3" in seen
    assert seen.count('class="clip"') == 1
    assert "clip_5" in unseen.split("</article>")[0]  # the worst first: said and wrong
    assert unseen.count('class="clip"') == 3
    made = {"clip_5": [Prediction("SHOT", 31_000, 0.5)]}
    assert "<h3>Seen coming</h3>" not in render(Report("r", clips, made, score(clips, made)))


def test_footage_may_begin_later_and_is_found_in_a_split(tmp_path: Path) -> None:
    (tmp_path / "split" / "clip_1").mkdir(parents=True)
    video = make_video(tmp_path / "split" / "clip_1" / "224p.mp4", range(1_000), size=(32, 64))
    assert footage_in(tmp_path / "split") == {"clip_1": Footage(video)}
    assert footage_in(tmp_path / "nowhere") == footage_in(tmp_path) == {}
    clips = [Clip("clip_1", (), (Event("PASS", 31_000),))]
    made = {"clip_1": [Prediction("PASS", 31_000, 0.5)]}
    page = render(Report("r", clips, made, score(clips, made), footage={"clip_1": Footage(video, 6_000)}))
    assert page.count("data:image/webp") == 9  # from 31 s to 40 s of the video
    assert page.count("tile unseen") == 1


def test_calibrated_confidences_are_the_ones_shown() -> None:
    clips = [Clip("clip_1", (), (Event("PASS", 31_000),))]
    made, undo_pos_weight = ({"clip_1": [Prediction("PASS", 31_000, c)]} for c in (0.83, 0.55))
    page = render(Report("r", clips, made, score(clips, made), shown=undo_pos_weight))
    assert "pass 55 %, in" in page
    assert "83 %" not in page


def test_in_a_browser(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", range(875), size=(32, 64))
    page = tmp_path / "report.html"
    title, film = "A report of " + "unbreakable" * 20, {f"clip_{n}": Footage(video) for n in range(1, 41)}
    write_report(page, make(title, footage=film, history=History([3, 2], [0.1, 0.2], 2)))

    def colour(of: str) -> str:
        return f"rgb{rgb(of)}"

    with open_browser() as browser:

        def ground() -> str:
            return browser.run("return getComputedStyle(document.body).backgroundColor")

        for theme, expected, other in (("light", LIGHT, DARK), ("dark", DARK, LIGHT)):
            for width in (PHONE, 1280):
                browser.show(page.as_uri(), width=width, theme=theme)  # type: ignore[arg-type]
                assert browser.overflow() <= 0, (theme, width)
                assert ground() == colour(expected.ground)
            browser.find("#theme").click()
            assert ground() == colour(other.ground)
        # The tolerance by keyboard: the arrow goes on to the next choice.
        browser.find("input[name=tolerance]:checked").send_keys("\ue014")  # right
        assert browser.find(".curves").get_attribute("data-tolerance") == "5"
        assert browser.find(".ap.t5").is_displayed()
        assert not browser.find(".ap.t4").is_displayed()
        loaded = "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
        assert browser.run(loaded)
        # Every mark of a film strip lies within its axis.
        outside = """return [...document.querySelectorAll('.mark')].filter(m => {
            const a = m.closest('.lanes').getBoundingClientRect(), b = m.getBoundingClientRect();
            return b.left < a.left - 1 || b.right > a.right + 1 || b.bottom > a.bottom + 1; }).length"""
        browser.size(PHONE)
        assert browser.run(outside) == 0
        assert browser.errors() == []


def test_intervals_stand_beside_the_score() -> None:
    clips = make_clips(40, seed=1)
    found = bootstrap(clips, predictions(clips), resamples=100)
    page, plain = render(make(intervals=found)), render(make())
    Tags(page)
    low, high = 100 * found.avg
    assert page.count(f">{low:.1f}–{high:.1f}</strong>") == 1  # of so few clips it is the large number itself
    for low, high in 100 * np.array([*found.at.T, found.avg]):
        assert f"<td>{low:.1f}–{high:.1f}</td>" in page
    events = score(clips, predictions(clips)).events
    assert page.count('class="ends"') == (events > 0).sum()
    assert "95 % of 100 resamples" in page
    assert "resamples" not in plain
    assert 'class="ends"' not in plain


def test_ranks_are_not_shown_as_per_cent_and_few_clips_show_the_interval() -> None:
    """As after `ballcast tune`: scores that are made for their order."""
    rng = np.random.default_rng(3)
    clips = [Clip(f"clip_{n}", anticipation=(Event("PASS", 31_000 + 50 * n),)) for n in range(12)]
    ranks = {
        clip.name: tuple(
            Prediction(label, int(rng.integers(30_000, 35_000)), float(rng.uniform(0.6, 1)))
            for label in ("CROSS", "SHOT", "OUT", "PASS")
        )
        for clip in clips
    }
    found = score(clips, ranks)
    page = render(Report("tuned", clips, ranks, found, intervals=bootstrap(clips, ranks, resamples=100)))
    assert "The confidences are not probabilities" in page
    assert "numbers are confidences" not in page
    assert not re.search(r"(cross|shot|out|pass) \d+ %, in", page)
    assert 'class="range"' in page
    assert f"{100 * found.avg:.1f} on these clips, too few to be sure" in page
