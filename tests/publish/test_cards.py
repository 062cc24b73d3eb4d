"""A model's card: the hub reads its head, people its body, and both say what the run recorded and nothing else."""

import re
from typing import Any

import pytest
from huggingface_hub import ModelCard, ModelCardData

from ballcast.core.anticipator_config import ModelConfig
from ballcast.model.score_mapping import ScoreMapping
from ballcast.publish.cards import model_card

SCORES = {name: i / 100 for i, name in enumerate(("at1", "at2", "at3", "at4", "at5", "atInfty", "avg"), start=10)}
RUN = {
    "backbone": {"hash": "ab" * 32, "name": "spotter", "fold": "4", "note": "it leaks", "trained_on": ["match_001"]},
    "pos_weight": 4.0,
    "trained_on": ["train"],
    "validated_on": ["valid"],
    "leaks": {"valid": "3 of 10"},
    "samples": 1862,
    "seed": 7,
    "epoch": 11,
    "ballcast": "0.1.0",
    "validation": {
        **SCORES,
        "per_class": {name: [0.5] * 9 + [0.25] for name in SCORES if name != "avg"},
    },
}


def made(metadata: dict[str, Any], calibration: ScoreMapping | None = None, **more: Any) -> str:
    return model_card("me/model", ModelConfig(), metadata, calibration, **{"licence": "mit", **more})


def head(text: str) -> ModelCardData:
    data = ModelCard(text).data
    assert isinstance(data, ModelCardData)
    return data


def test_the_card_lists_all_that_the_run_recorded() -> None:
    figures = {"samples": 90.0, "before": 0.1, "after": 0.12, "outside_before": 0.1, "outside_after": 0.11}
    text = made(RUN, ScoreMapping(fitted_on="valid, features by spotter", figures=figures), backbone="me/spotter")
    for words in (
        "features of spotter (sha256 `abababababab…`)",
        "Trained on: `train`, 1862 samples",
        "Validated on: `valid`",
        "Seed: 7; kept: epoch 11",
        "on `valid`: one run, seed 7",
        "| mean | 10.00 | 11.00 | 12.00 | 13.00 | 14.00 | 15.00 | 16.00 |",
        "| tackle | 25.00 |",
        "Tuned on valid, features by spotter, 90 samples",
        "| on folds it was not fitted on | 10.00 | 11.00 |",
        "The backbone has seen 3 of 10 of the videos of `valid`",
        "learned from `match_001`",
        "the fold held out is 4",
        "it leaks",
        "The weights: mit.",
        "--model me/model --backbone me/spotter",
    ):
        assert words in text, words
    assert "not recorded" not in text


def test_the_hub_can_read_its_head() -> None:
    data = head(made(RUN))
    assert (data.license, data.library_name, data.model_name) == ("mit", "ballcast", "model")
    assert data.eval_results is not None
    metrics = {result.metric_name: result.metric_value for result in data.eval_results}
    assert metrics["mAP, mean"] == 16.0
    assert metrics["mAP, ∞"] == 15.0
    assert {result.dataset_name for result in data.eval_results} == {"valid"}


def test_what_was_not_recorded_is_not_made_up() -> None:
    text = made({})
    for words in (
        "Seed: not recorded",
        "None: it was trained without validation",
        "Not tuned",
        "not recorded with this",
    ):
        assert words in text, words
    assert "model-index" not in text
    assert head(text).eval_results is None


def test_a_model_of_event_feeds_says_how_it_is_used() -> None:
    text = made({"backbone": {"hash": "0", "name": "rich event grid 1", "trained_on": []}})
    assert "ballcast predict --events match.json --model me/model" in text
    assert "BACKBONE" not in text


@pytest.mark.parametrize("evil", ["| x |\n# Heading", "<script>", "[a](http://b)", "---\nlicense: wtfpl", "`rm`"])
def test_names_from_elsewhere_stay_text(evil: str) -> None:
    names = {"hash": evil, "name": evil, "note": evil, "fold": evil, "trained_on": [evil]}
    text = made({**RUN, "backbone": names, "trained_on": [evil], "validated_on": [evil], "seed": evil, "epoch": [evil]})
    assert head(text).license == "mit"
    assert "\n# Heading" not in text
    body = re.sub("`[^`\n]*`", "", text.partition("\n---\n\n")[2])  # what stands in code is text already
    for mark in ("<script>", "[a](", "---\nlicense"):
        assert mark not in body


@pytest.mark.parametrize("odd", [None, 3, "text", [], {"per_class": 3}, {"avg": "high"}, {"per_class": {"at1": [1]}}])
def test_metadata_of_odd_shapes_is_no_traceback(odd: Any) -> None:
    assert "## Scores" in made(dict.fromkeys(RUN, odd))
    assert "## Scores" in made({**RUN, "validation": odd, "backbone": {"trained_on": odd, "fold": odd}})
