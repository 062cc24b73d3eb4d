"""Overlapping clips joined by their labels: which are, which are not, and the events of what comes out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import CLIPS, WINDOWS, make_game, make_split, write_store

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import DataConfig
from ballcast.core.backbone_config import BackboneIdentity, Preprocessing
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.batches import Samples, plan_epoch, sample_weights
from ballcast.data.samples.windows import (
    Stretch,
    WindowSet,
    cut_clip,
    follows,
    match_events,
    official_windows,
    stitch,
    stitched_windows,
    token_centres_ms,
)
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_writer import StoreWriter
from benchmarks.game_windows import game_windows


def test_clips_of_two_games_are_kept_apart(tmp_path: Path) -> None:
    first = read_labels(make_game(tmp_path / "a", 60, seed=1).labels)
    second = read_labels(make_game(tmp_path / "b", 60, seed=2).labels)
    assert [len(s.clips) for s in stitch([*first, *second])] == [len(first), len(second)]


def test_labels_that_disagree_or_say_nothing_do_not_stitch() -> None:
    a = Clip("a", (Event("PASS", 6000),), ())
    assert follows(a, Clip("b", (Event("PASS", 1000),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1001),), ()), tolerance_ms=0)
    assert follows(a, Clip("b", (Event("PASS", 1040),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1041),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1000), Event("SHOT", 2000)), ()))
    assert not follows(Clip("a"), Clip("b"))


def test_teams_and_visibility_must_agree() -> None:
    a = Clip("a", (Event("PASS", 6000, "home"),), ())
    assert follows(a, Clip("b", (Event("PASS", 1000, "home"),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1000, "away"),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1000, "home", visible=False),), ()))


def jittered(clips: list[Clip], most_ms: int) -> list[Clip]:
    """The clips with every label moved by −most_ms … most_ms, each clip its own way; none leaves its part."""
    rng = np.random.default_rng(0)

    def moved(events: tuple[Event, ...], low: int, high: int) -> tuple[Event, ...]:
        by = rng.integers(-most_ms, most_ms + 1, len(events)).tolist()
        return tuple(
            replace(e, position_ms=min(max(e.position_ms + d, low), high)) for e, d in zip(events, by, strict=True)
        )

    return [
        replace(c, observation=moved(c.observation, 0, 29_999), anticipation=moved(c.anticipation, 30_000, 34_999))
        for c in clips
    ]


def test_labels_a_millisecond_apart_are_stitched(tmp_path: Path) -> None:
    store = make_game(tmp_path / "train", 100, seed=3)
    clips = read_labels(tmp_path / "train")
    exact = stitched_windows([(store, clips)], WINDOWS)
    apart = jittered(clips, 1)
    assert len(stitch(apart, tolerance_ms=0)) > 5
    (stretch,) = stitch(apart)
    happened, expected = stretch.events(), Stretch(tuple(clips)).events()
    assert [e.label for e in happened] == [e.label for e in expected]  # each once
    assert max(abs(a.position_ms - b.position_ms) for a, b in zip(happened, expected, strict=True)) <= 1
    windows = stitched_windows([(store, apart)], WINDOWS)
    assert len(windows) == len(exact) == 66
    assert windows.stretches == ((14,),)
    failed = stitched_windows([(store, apart)], WINDOWS, tolerance_ms=0)
    assert sum(failed.stretches[0]) == 14
    assert len(failed) < 40


def test_an_event_at_the_edge_of_the_shared_time_may_be_in_one_clip_only() -> None:
    """A label at 0 ms of the second clip may be at −1 ms there, and one at 29 999 ms at 30 000."""
    middle = Event("PASS", 20_000)
    a = Clip("a", (Event("SHOT", 5000), middle), (Event("OUT", 34_999),))
    assert follows(a, Clip("b", (Event("PASS", 15_000),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 15_000),), ()), tolerance_ms=0)
    assert not follows(Clip("a", (Event("SHOT", 5040), middle), ()), Clip("b", (Event("PASS", 15_000),), ()))
    assert not follows(Clip("a", (Event("SHOT", 5000),), ()), Clip("b"))  # no label in common


def test_neighbouring_events_of_one_label_are_paired_one_to_one() -> None:
    """Two passes 30 ms apart are two events, in one clip and across two."""
    first, second = [Event("PASS", 1000), Event("PASS", 1030)], [Event("PASS", 1001), Event("PASS", 1031)]
    assert match_events(first, second, 40) == (2, [], [])
    assert match_events(first[:1], second, 40) == (1, [], [second[1]])
    assert match_events(first, [Event("SHOT", 1000)], 40) == (0, first, [Event("SHOT", 1000)])
    a = Clip("a", (Event("PASS", 20_000),), (Event("PASS", 34_990),))
    b = Clip("b", (Event("PASS", 15_000), Event("PASS", 29_990)), (Event("PASS", 30_010),))
    (stretch,) = stitch([a, b])
    assert [e.position_ms for e in stretch.events()] == [20_000, 34_990, 35_010]


def test_two_teams_at_the_same_time_are_two_events() -> None:
    both = Clip("a", (Event("HEADER", 6000, "home"), Event("HEADER", 6000, "away")), ())
    after = Clip("b", tuple(replace(e, position_ms=1000) for e in both.observation), ())
    (stretch,) = stitch([both, after])
    assert sorted(e.team for e in stretch.events()) == ["away", "home"]


CPU = torch.device("cpu")


def opened(store):  # type: ignore[no-untyped-def]
    return [(store, read_labels(store.labels))]


def test_a_game_is_stitched_and_cut_every_second(tmp_path: Path) -> None:
    """A game of 100 s is 14 clips, 0 s to 65 s: 66 samples, one a second, each with the events of its own 5 s."""
    store = make_game(tmp_path / "train", 100, seed=3)
    clips = read_labels(tmp_path / "train")
    assert len(clips) == 14
    (stretch,) = stitch(clips)
    windows = stitched_windows([(store, clips)], WINDOWS)
    assert len(windows) == 66
    assert windows.names[:7] == [
        "clip_1",
        "clip_1+1000",
        "clip_1+2000",
        "clip_1+3000",
        "clip_1+4000",
        "clip_2",
        "clip_2+1000",
    ]
    events = stretch.events()
    for s in (0, 7, 33, 65):
        due = [e for e in events if 1000 * s + 30_000 <= e.position_ms < 1000 * s + 35_000]
        assert windows.classes[s][windows.classes[s] >= 0].tolist() == [e.action for e in due][:8]
        assert windows.position_ms[s][: len(due)].tolist() == [e.position_ms - 1000 * s for e in due][:8]
    # The rows of sample 7 are the windows at 7, 12, …, 32 s of the game.
    taken = Samples(windows, CPU, "memory").take(torch.tensor([7]))
    block = store.rows[0]
    for w, second in enumerate(range(7, 37, 5)):
        clip = min(second // 5, 13)
        np.testing.assert_array_equal(taken.features[0, w].numpy(), block[clip, second - 5 * clip])


def test_whole_games_are_cut_as_their_clips_would_be(tmp_path: Path) -> None:
    """A game of 100 s with a window a second, 0 to 95 s: clips start at 0 to 65 s, the last followed by 5 s of game."""
    rows = np.random.default_rng(0).random((96, 2, 3)).astype(np.float16)
    writer = StoreWriter(tmp_path / "games", Header(BackboneIdentity("0" * 64, "made up"), 2, 3, 25))
    writer.add("match", rows, source="match.mp4", size=0, mtime_ns=0)
    store = writer.finish()
    events = [Event("PASS", 29_999), Event("SHOT", 34_999), Event("DRIVE", 35_000), Event("OUT", 99_999)]
    clips = game_windows(store, {"match": events}, 6, every_ms=5000)
    assert clips.names == [f"match+{start}" for start in range(0, 65_001, 5000)]
    assert [e.label for e in clips.clips[0].anticipation] == ["SHOT"]
    assert [e.label for e in clips.clips[1].anticipation] == ["DRIVE"]
    assert clips.clips[1].anticipation[0].position_ms == 30_000
    assert [e.label for e in clips.clips[-1].anticipation] == ["OUT"]
    each = game_windows(store, {"match": events}, 6, every_ms=1000)
    assert len(each) == 66
    taken = Samples(each, CPU, "memory").take(torch.tensor([7]))
    np.testing.assert_array_equal(taken.features[0].numpy(), rows[7:33:5])
    with pytest.raises(InputError, match="no window at frame 10"):
        game_windows(store, {"match": events}, 6, every_ms=400)
    with pytest.raises(InputError, match="long enough"):
        game_windows(store, {"match": events}, 20, every_ms=1000)


def test_samples_share_rows(tmp_path: Path) -> None:
    """66 samples of 6 windows need one row a second of the 90 s, not 396."""
    windows = stitched_windows(opened(make_game(tmp_path / "train", 100, seed=3)), WINDOWS)
    assert len(np.unique(windows.index)) == 65 + 25 + 1


def test_a_sparse_store_gives_the_clips_themselves(tmp_path: Path) -> None:
    store = make_game(tmp_path / "train", 100, seed=3, every=125)
    windows = stitched_windows(opened(store), WINDOWS)
    assert windows.names == [f"clip_{n}" for n in range(1, 15)]
    official = official_windows(opened(store), WINDOWS)
    assert official.names == windows.names
    np.testing.assert_array_equal(official.classes, windows.classes)


def test_auxiliary_target_lies_at_the_nearest_clip_and_its_neighbours(tmp_path: Path) -> None:
    """33 clips of span 29: clip i is centred on frame 3i + 14, so 26 000 ms (frame 25) is nearest to clip 4 (26)."""
    assert token_centres_ms(33)[:2].tolist() == [560, 680]
    assert token_centres_ms(21)[0] == 32 * 40  # the 33-frame network spans 65
    assert int(np.abs(token_centres_ms(33) - 1000).argmin()) == 4
    store = make_split(tmp_path / "train", 3, seed=0)
    clips = read_labels(store.labels)
    windows = official_windows([(store, clips)], WINDOWS)
    centres = token_centres_ms(CLIPS)
    for s, clip in enumerate(clips):
        expected = np.zeros((CLIPS, 10))
        for event in clip.observation:
            if event.position_ms >= 25_000:
                i = int(np.abs(centres - (event.position_ms - 25_000)).argmin())
                expected[max(0, i - 1) : i + 2, event.action] = 1
        np.testing.assert_array_equal(windows.presence[s], expected)


def test_auxiliary_targets_know_the_stride_of_the_store(tmp_path: Path) -> None:
    """17 clips of span 29 every 6 frames: clip i is centred on frame 6i + 14; 3 s into the window is nearest to 10."""
    made = Preprocessing(frames=15, step=2, stack=3, span=29, stride=6, padding=32, precision="fp32")
    assert token_centres_ms(17, made)[[0, 1, 16]].tolist() == [560, 800, 4400]
    header = Header(BackboneIdentity("h", "b"), 17, 4, preprocessing=made)
    writer = StoreWriter(tmp_path, header)
    writer.add("clip_1", np.zeros((WINDOWS, 17, 4), np.float16), source="", size=0, mtime_ns=0)
    windows = official_windows([(writer.finish(), [Clip("clip_1", (Event("SHOT", 28_000),))])], WINDOWS)
    assert windows.presence[0, :, ACTIONS.index("SHOT")].nonzero()[0].tolist() == [9, 10, 11]


def test_a_clip_without_features_is_named(tmp_path: Path) -> None:
    store = make_split(tmp_path / "train", 3, seed=0)
    clips = [*read_labels(store.labels), Clip("clip_9")]
    with pytest.raises(InputError, match="no features of clip_9"):
        official_windows([(store, clips)], WINDOWS)
    with pytest.raises(
        InputError, match=r"clip_1 has no 7 windows of 5 s one after the other; is it shorter than 35 s\?"
    ):
        official_windows([(store, clips[:3])], 7)


@pytest.mark.parametrize(
    ("rule", "expected"), [("max", [1, 1, 15, 40]), ("sum", [1, 1, 19, 45]), ("product", [1, 1, 60, 160])]
)
def test_weights_follow_the_boosts(rule: Any, expected: list[float]) -> None:
    index = {label: i for i, label in enumerate(ACTIONS)}
    classes = np.full((4, 8), -1)
    classes[1, 0] = index["PASS"]
    classes[2, :2] = index["CROSS"], index["SHOT"]
    classes[3, :3] = index["PASS"], index["PLAYER SUCCESSFUL TACKLE"], index["THROW IN"]
    weights = sample_weights(classes, DataConfig(boost_rule=rule))
    assert weights is not None
    assert weights.tolist() == expected
    assert sample_weights(classes, DataConfig(boost={})) is None


def test_a_plan_follows_from_seed_and_epoch() -> None:
    classes = np.full((100, 8), -1)
    classes[:10, 0] = ACTIONS.index("PLAYER SUCCESSFUL TACKLE")
    config = DataConfig()
    plan = plan_epoch(classes, config, batch=8, windows=6, seed=1, epoch=2)
    again = plan_epoch(classes, config, batch=8, windows=6, seed=1, epoch=2)
    other = plan_epoch(classes, config, batch=8, windows=6, seed=1, epoch=3)
    assert len(plan) == 12
    np.testing.assert_array_equal(plan.first, again.first)
    np.testing.assert_array_equal(plan.share, again.share)
    assert (plan.first != other.first).any()
    assert (np.sort(plan.first) == np.sort(plan.second)).all()  # partners come from the same batch
    drawn = np.concatenate(
        [plan_epoch(classes, config, batch=8, windows=6, seed=s, epoch=0).first.ravel() for s in range(30)]
    )
    assert abs((drawn < 10).mean() - 400 / 490) < 0.03  # 10 samples of weight 40 among 90 of weight 1
    halves = [plan.slice(r, 2) for r in range(2)]
    np.testing.assert_array_equal(np.hstack([h.first for h in halves]), plan.first)


def test_without_boosts_every_sample_comes_once_and_windows_drop_at_the_rate_asked() -> None:
    classes = np.full((4000, 8), -1)
    config = DataConfig(boost={}, drop_windows=0.1)
    plan = plan_epoch(classes, config, batch=8, windows=6, seed=0, epoch=0)
    assert sorted(plan.first.ravel().tolist()) == list(range(4000))
    assert abs((plan.absent > 0).mean() - 0.1) < 0.02
    assert set(np.unique(plan.absent)) == {0, 1, 2, 3, 4, 5}
    plain = plan_epoch(classes, replace(config, mixup=0.0, drop_windows=0.0), batch=8, windows=6, seed=0, epoch=0)
    assert not plain.mixed
    assert (plain.absent == 0).all()


def test_mixup_shares_are_drawn_from_a_symmetric_beta() -> None:
    """Beta(a, a): mean 1/2, variance 1/(8a + 4), and at 0.4 a U: more at the ends than anywhere between."""
    classes = np.full((40_000, 8), -1)
    for a in (0.4, 1.0, 3.0):
        config = DataConfig(boost={}, mixup=a)
        share = plan_epoch(classes, config, batch=8, windows=6, seed=0, epoch=0).share.astype(np.float64)
        assert share.min() >= 0
        assert share.max() <= 1
        assert abs(share.mean() - 0.5) < 0.01
        assert abs(share.var() - 1 / (8 * a + 4)) < 0.005
        assert abs(np.quantile(share, 0.2) - (1 - np.quantile(share, 0.8))) < 0.02
    share = plan_epoch(classes, DataConfig(boost={}), batch=8, windows=6, seed=0, epoch=0).share  # the paper's 0.4
    shares, _ = np.histogram(share, bins=5, range=(0, 1))
    assert min(shares[0], shares[4]) > 2 * shares[1:4].max()
    assert len(np.unique(share)) > 30_000  # a share a pair, not one a batch


def test_partners_are_drawn_for_each_batch() -> None:
    """A permutation of each batch, not the same for all; each sample meets every other, and itself, equally often."""
    plan = plan_epoch(np.full((8000, 8), -1), DataConfig(boost={}), batch=4, windows=6, seed=0, epoch=0)
    place = (plan.first[:, :, None] == plan.second[:, None, :]).argmax(1)  # of each partner in its batch
    assert (np.sort(place, 1) == np.arange(4)).all()
    for own in range(4):
        assert np.bincount(place[:, own], minlength=4) / len(plan) == pytest.approx(0.25, abs=0.05)
    assert len(np.unique(place, axis=0)) == 24  # all permutations, not only the rotations


def test_memory_and_disk_give_the_same_batches(tmp_path: Path) -> None:
    windows = stitched_windows(opened(make_game(tmp_path / "train", 80, seed=3)), WINDOWS)
    memory, disk = Samples(windows, CPU, "memory"), Samples(windows, CPU, "disk")
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0)).split(5)
    count = 0
    for a, b in zip(memory.stream(order), disk.stream(order), strict=True):
        count += 1
        for x, y in zip(a.tensors(), b.tensors(), strict=True):
            assert torch.equal(x, y)
    assert count == len(order)


def test_a_window_that_two_clips_share_is_the_earlier_ones(tmp_path: Path) -> None:
    """Features of one moment differ a little by the clip: of clip 2's windows, the last alone is read from clip 2."""
    game = make_game(tmp_path / "game", 50, seed=3)
    clips = read_labels(game.labels)
    noise = np.random.default_rng(0).normal(size=(len(clips), *game.rows[0].shape[1:])).astype(np.float16)
    store = write_store(tmp_path / "noisy", clips, noise, every=25)
    windows = stitched_windows([(store, clips)], WINDOWS)
    assert [len(stretch) for stretch in (windows.stretches or ())] == [1]
    seen = Samples(windows, CPU, "memory").take(torch.tensor([windows.names.index("clip_2")])).features[0].numpy()
    starts = store.starts("clip_1")
    np.testing.assert_array_equal(seen[:-1], noise[0, [starts.index(125 * n) for n in range(1, WINDOWS)]])
    np.testing.assert_array_equal(seen[-1], noise[1, starts.index(125 * (WINDOWS - 1))])


def test_two_splits_keep_their_clips_apart(tmp_path: Path) -> None:
    stores = [opened(make_split(tmp_path / name, 3, seed))[0] for seed, name in enumerate(("valid", "test"))]
    windows = official_windows(stores, WINDOWS)
    assert windows.names == [f"{split}/clip_{n}" for split in ("valid", "test") for n in (1, 2, 3)]
    assert [clip.name for clip in windows.clips] == windows.names


def test_what_cannot_be_cut_is_counted(tmp_path: Path) -> None:
    assert stitched_windows(opened(make_game(tmp_path / "a", 100, seed=3)), WINDOWS).left_out == 0
    assert stitched_windows(opened(make_game(tmp_path / "b", 100, seed=3, every=125)), WINDOWS).left_out == 66 - 14


def test_an_observed_event_on_the_edge_is_no_target(tmp_path: Path) -> None:
    store = make_split(tmp_path / "train", 1, seed=0)
    clip = Clip("clip_1", (Event("SHOT", 30_000),), (Event("PASS", 30_000), Event("OUT", 35_000)))
    windows = official_windows([(store, [clip])], WINDOWS)
    assert windows.classes[0, :3].tolist() == [ACTIONS.index("PASS"), ACTIONS.index("OUT"), -1]
    assert windows.presence[0, :, ACTIONS.index("SHOT")].any()


def test_mirrored_samples_change_sides(tmp_path: Path) -> None:
    windows = stitched_windows(opened(make_game(tmp_path / "train", 100, seed=3)), WINDOWS)
    windows.rows[0] = np.abs(windows.rows[0]).clip(0, 1)
    sided = replace(windows, mirrored=(1, 2))
    count = len(windows)
    for where in ("memory", "disk"):
        samples = Samples(sided, CPU, where)  # type: ignore[arg-type]
        plain, turned = samples.take(torch.tensor([4, 9])), samples.take(torch.tensor([count + 4, 9]))
        assert torch.equal(turned.features[0, ..., 1:3], 1 - plain.features[0, ..., 1:3])
        assert torch.equal(turned.features[0, ..., 3:], plain.features[0, ..., 3:])
        assert torch.equal(turned.features[1], plain.features[1])
        assert torch.equal(turned.classes, plain.classes)


def test_a_plan_mirrors_as_often_as_it_is_told() -> None:
    classes = np.full((1000, 8), -1)
    plans = [
        plan_epoch(classes, DataConfig(mirror=chance, boost={}, mixup=0), batch=10, windows=6, seed=1, epoch=0)
        for chance in (0.0, 0.3)
    ]
    assert plans[0].first.max() == 999
    assert 0.25 < (plans[1].first >= 1000).mean() < 0.35
    np.testing.assert_array_equal(plans[1].first % 1000, plans[0].first)


def test_a_later_split_reads_its_own_features(tmp_path: Path) -> None:
    splits = [opened(make_game(tmp_path / name, 50, seed))[0] for seed, name in enumerate(("train", "test"))]
    for made in (official_windows(splits, WINDOWS), stitched_windows(splits, WINDOWS)):
        samples = Samples(made, CPU, "memory")
        for store, _ in splits:
            at = made.names.index(f"{store.path.name}/clip_2")
            taken = samples.take(torch.tensor([at])).features[0].numpy()
            np.testing.assert_array_equal(taken, store.rows[0][1, ::5])  # a window a second, of which every fifth


def test_seed_and_epoch_are_not_interchangeable() -> None:
    classes = np.full((100, 8), -1)
    one, other = (
        plan_epoch(classes, DataConfig(), batch=8, windows=6, seed=seed, epoch=3 - seed).first for seed in (1, 2)
    )
    assert (one != other).any()


def test_mirroring_is_drawn_for_each_sample_of_a_batch() -> None:
    classes = np.full((1000, 8), -1)
    plan = plan_epoch(classes, DataConfig(mirror=0.5, boost={}), batch=20, windows=6, seed=0, epoch=0)
    mirrored = (plan.first >= 1000).mean(1)  # of each batch
    assert ((mirrored > 0) & (mirrored < 1)).all()


def test_the_five_seconds_to_come_end_before_their_last_millisecond(tmp_path: Path) -> None:
    """Between clips, an event 35 s after a sample's start is no longer to be anticipated; one 30 s after it is."""
    store = make_game(tmp_path / "train", 40, seed=3)
    shared = [Event("PASS", 20_000), Event("DRIVE", 31_000), Event("SHOT", 34_999)]
    first = Clip("clip_1", (shared[0],), tuple(shared[1:]))
    moved = tuple(replace(e, position_ms=e.position_ms - 5000) for e in shared)
    second = Clip("clip_2", moved, (Event("OUT", 31_000),))
    windows = stitched_windows([(store, [first, second])], WINDOWS)
    assert windows.names[1] == "clip_1+1000"
    assert windows.classes[1, :3].tolist() == [ACTIONS.index("DRIVE"), ACTIONS.index("SHOT"), -1]  # OUT: 36 000 − 1000
    assert windows.position_ms[1, :2].tolist() == [30_000, 33_999]
    assert windows.classes[2, 1:3].tolist() == [ACTIONS.index("OUT"), -1]


def test_tokens_without_preprocessing(tmp_path: Path) -> None:
    """33 tokens start every 3 frames and cover 125 − 96 = 29; 62 are too many for that and divide the 5 s."""
    assert token_centres_ms(33)[[0, 1, 32]].tolist() == [560, 680, 4400]  # frame 14, 17, 110
    assert token_centres_ms(42)[[0, 41]].tolist() == [20, 4940]  # two frames each
    assert token_centres_ms(50)[[0, 1, 49]].tolist() == [50, 150, 4950]
    single = Preprocessing(frames=1, step=1, stack=1, span=1, stride=2, padding=32, precision="fp32")
    assert token_centres_ms(62, single)[[0, 1, 61]].tolist() == [0, 80, 4880]


def test_a_step_that_does_not_divide_five_seconds(tmp_path: Path) -> None:
    """Every 2 s of 13 stitched clips, 60 s and a bit: 0, 2, … 60 are 31; windows every 5 s have 0, 10, … 60."""
    store = make_game(tmp_path / "train", 100, seed=3, every=125)
    clips = read_labels(store.labels)[:13]
    made = stitched_windows([(store, clips)], WINDOWS, every_ms=2000)
    assert made.stretches == ((13,),)
    assert made.left_out == 31 - 7
    assert made.names == ["clip_1", "clip_3", "clip_5", "clip_7", "clip_9", "clip_11", "clip_13"]
    assert (
        stitched_windows([(store, clips[:2])], WINDOWS, every_ms=3000).left_out == 1
    )  # 0 and 3 s, of which 3 s is not


def test_stores_must_have_the_same_width(tmp_path: Path) -> None:
    one = make_split(tmp_path / "train", 2, seed=0)
    header = Header(BackboneIdentity("h", "b"), 17, 4)
    writer = StoreWriter(tmp_path / "other", header)
    writer.add("clip_1", np.zeros((WINDOWS, 17, 4), np.float16), source="", size=0, mtime_ns=0)
    with pytest.raises(InputError, match="other: its windows are 17 × 4, unlike those before it"):
        official_windows([(one, read_labels(one.labels)), (writer.finish(), [Clip("clip_1")])], WINDOWS)
    with pytest.raises(InputError, match="no sample could be made: the feature stores hold none of the labelled clips"):
        official_windows([(one, [])], WINDOWS)


def test_joined_sets_keep_their_rows() -> None:
    def one(first: float, rows: list[int], index: list[list[int]], name: str) -> WindowSet:
        blocks = [np.full((n, 2, 1), first, np.float16) for n in rows]
        count = len(index)
        return WindowSet(
            blocks,
            np.array(index),
            np.full((count, 8), int(first)),
            np.full((count, 8), 30_000 + int(first)),
            np.full((count, 2, 10), int(first), np.uint8),
            [f"{name}{i}" for i in range(count)],
            [Clip(name)],
            mirrored=(int(first),),
        )

    parts = one(1, [2, 3], [[0, 4]], "a"), one(2, [4], [[-1, 0], [3, 3]], "b"), one(3, [1], [[0, 0]], "c")
    joined = WindowSet.join(parts)
    assert [len(block) for block in joined.rows] == [2, 3, 4, 1]
    assert joined.index.tolist() == [[0, 4], [-1, 5], [8, 8], [9, 9]]
    assert joined.classes[:, 0].tolist() == [1, 2, 2, 3]
    assert joined.position_ms[:, 0].tolist() == [30_001, 30_002, 30_002, 30_003]
    assert joined.presence[:, 0, 0].tolist() == [1, 2, 2, 3]
    assert joined.names == ["a0", "b0", "b1", "c0"]
    assert [clip.name for clip in joined.clips] == ["a", "b", "c"]
    assert joined.mirrored == (1,)
    assert WindowSet.join(parts[:1]) is parts[0]


def test_a_clip_is_cut_with_both_its_ends() -> None:
    events = [Event("PASS", t, "home", visible=False) for t in (9999, 10_000, 39_999, 40_000, 44_999, 45_000)]
    clip = cut_clip(events, 10_000, "x")
    assert clip.name == "x"
    assert [e.position_ms for e in clip.observation] == [0, 29_999]
    assert [e.position_ms for e in clip.anticipation] == [30_000, 34_999]
    assert {(e.label, e.team, e.visible) for e in clip.observation} == {("PASS", "home", False)}


def test_a_game_without_a_window_or_too_short_is_one_sentence(tmp_path: Path) -> None:
    def game(frames: list[int], name: str) -> FeatureStore:
        writer = StoreWriter(tmp_path / name, Header(BackboneIdentity("h", "b"), 5, 4, 25))
        writer.add("match", np.zeros((len(frames), 5, 4), np.float16), source="", size=0, mtime_ns=0)
        return writer.finish()

    whole = game(list(range(0, 1001, 25)), "whole")
    made = game_windows(whole, {"match": [Event("SHOT", 31_000)]}, WINDOWS, every_ms=5000)
    assert made.names == ["match+0", "match+5000", "match+10000"]  # the last starts 30 s before the last window
    assert made.index[1].tolist() == [5, 10, 15, 20, 25, 30]
    assert made.position_ms[:2, 0].tolist() == [31_000, 30_000]
    assert made.classes[:, 0].tolist() == [6, -1, -1]
    with pytest.raises(InputError, match=r"whole: match has no window at frame 10; extract with another --every"):
        game_windows(whole, {"match": []}, WINDOWS, every_ms=400)
    with pytest.raises(InputError, match="short: no game in it is long enough for 6 windows of 5 s"):
        game_windows(game(list(range(0, 750, 25)), "short"), {"match": []}, WINDOWS, every_ms=5000)


def test_an_event_just_before_the_next_clip_is_found_once() -> None:
    """The second clip starts at 5 s and has an event of 4960 ms at its start, 40 ms late: one event, as first seen."""
    pair = Clip("a", (Event("PASS", 4960),)), Clip("b", (Event("PASS", 0), Event("PASS", 100)))
    assert [e.position_ms for e in Stretch(pair, tolerance_ms=40).events()] == [4960, 5100]
    assert [e.position_ms for e in Stretch(pair, tolerance_ms=39).events()] == [4960, 5000, 5100]
