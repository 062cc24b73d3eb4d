"""Training on films: targets, batches, and the AUC it validates with."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ballcast.features.stack_index import snippet_count
from tools.train_films import EVERY, Film, Films, draw_batch, film_recipe, frame_auc, new_model

ACTIONS = [
    {"position": 1000, "label": "PASS"},
    {"position": 5200, "label": "DRIVE"},
    {"position": 6000, "label": "SHOT"},
    {"position": 14_000, "label": "PASS"},
]


@pytest.fixture
def film() -> Film:
    frames = torch.from_numpy(np.random.default_rng(0).integers(16, 235, (200, 336 * 398), dtype=np.uint8))
    return Film(6001, frames, ACTIONS, sigma_ms=80)


def test_what_is_to_come_begins_now_and_ends_after_five_seconds(film):
    classes, position = film.to_come(25)  # 1 s
    assert classes.tolist()[:3] == [0, 1, -1]
    assert position.tolist()[:2] == [30_000, 34_200]
    classes, position = film.to_come(26)  # 1.04 s: 6 s is in, the pass is over
    assert classes.tolist()[:3] == [1, 6, -1]
    assert position.tolist()[:2] == [34_160, 34_960]


def test_presence_peaks_at_the_frames_of_actions(film):
    assert film.presence.shape == (200, 10)
    assert film.presence[:, 1].argmax() == 5200 // (40 * EVERY)
    assert film.presence[5200 // (40 * EVERY), 1] == pytest.approx(1, abs=0.13)
    assert film.presence[:, 4].max() == 0  # no throw-in


def test_films_are_taken_once_they_are_labelled(tmp_path):
    films = Films(tmp_path, torch.device("cpu"), room=1, sigma_ms=80)
    films.stopped = True
    films._thread.join()
    for seed in (6001, 6002, 8001):
        np.save(tmp_path / f"match_{seed}.npy", np.zeros((4, 336 * 398), np.uint8))
    assert films._labels() == {}
    entries = [{"video": f"match_{seed}.npy", "actions": ACTIONS} for seed in (6001, 6002, 8001)]
    (tmp_path / "matches.json").write_text(json.dumps(entries))
    for name, actions in films._labels().items():
        films._take(tmp_path / name, actions)
    assert [film.seed for film in films.train] == [6002]  # the newest, where there is room for one
    assert [film.seed for film in films.valid] == [8001]
    assert not list(tmp_path.glob("*.npy"))


def test_batches_have_the_shapes_of_the_model(film):
    offsets = np.arange(0, 125, EVERY)
    model = SimpleNamespace(
        frame_offsets=offsets,
        middles=2 * np.arange(61) + 2,
        anticipator=SimpleNamespace(config=SimpleNamespace(bins=32)),
    )
    seen, targets = draw_batch([film], model, 2, 0.5, np.random.default_rng(0))
    assert seen.shape == (2, 3 * 63, 224, 398)
    assert seen.min() >= 0
    assert seen.max() <= 1
    assert targets.presence.shape == (2, 61, 10)
    assert targets.classes.shape == (2, 8)


def test_auc_against_counted_pairs():
    times = np.arange(10) * 0.08
    scores = np.array([0, 0, 3, 9, 8, 7, 1, 2, 0.5, 6])
    events = np.array([0.32])
    near = np.abs(times - 0.32) <= 0.1
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[near] for b in scores[~near]]
    assert frame_auc(scores, times, events, 0.1) == pytest.approx(np.mean(pairs))
    assert np.isnan(frame_auc(scores, times, np.array([])))


def test_the_recipe_builds_a_model_that_reads_what_films_have():
    recipe = film_recipe()
    model = new_model(recipe)
    assert snippet_count(recipe.encoder.network) == recipe.model.clips == 61
    assert (model.frame_offsets % EVERY == 0).all()
    assert recipe.encoder.network.planes == 5
