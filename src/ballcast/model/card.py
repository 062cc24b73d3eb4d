"""The card of an anticipator: what it learned from, how good it is by whose count, and what to be wary of."""

from typing import Any

from ballcast.core.actions import SHORT_NAMES
from ballcast.core.card import (
    HOME,
    TAGS,
    UNKNOWN,
    card,
    code,
    inline,
    listed,
    percent,
    result,
    section_on_licence,
    table,
)
from ballcast.core.recipe import ModelConfig
from ballcast.features.card import section_on_leaks
from ballcast.features.manifest import BackboneIdentity
from ballcast.model.calibration import Calibration

WIDTHS = {"at1": "1 s", "at2": "2 s", "at3": "3 s", "at4": "4 s", "at5": "5 s", "atInfty": "∞", "avg": "mean"}


def write_card(
    repo_id: str,
    config: ModelConfig,
    metadata: dict[str, Any],
    calibration: Calibration | None,
    *,
    licence: str,
    backbone: str | None = None,
) -> str:
    """README.md for the model with this config, metadata (as a run records it) and calibration.

    `licence`: the hub's short name of it. `backbone`: the hub id of the one whose features it reads, if it has one.
    """
    name = repo_id.rpartition("/")[2]
    scores, valid = _record(metadata, "validation"), _names(metadata, "validated_on")
    front: dict[str, Any] = {
        "library_name": "ballcast",
        "license": licence,
        "tags": list(TAGS),
        "pipeline_tag": "video-classification",
    }
    if isinstance(scores.get("avg"), float):
        told = {f"mAP, {WIDTHS[key]}": 100 * scores[key] for key in WIDTHS if isinstance(scores.get(key), float)}
        front["model-index"] = [result(name, "video-classification", ", ".join(valid) or "validation", told)]
    networks = {"hierarchy": "the paper's hierarchical GRU with input-conditioned slot queries", "faantra": "FAANTRA"}
    return card(
        front,
        f"""# {inline(name)}

Anticipates football: from what 30 seconds of a match showed, which of ten ball actions come in the next 5 seconds, and
when. The network is {networks[config.kind]}, {config.slots} slots, trained with [ballcast]({HOME})
{inline(metadata.get("ballcast", ""))}.""",
        _data(config, metadata, valid),
        _scores(metadata, scores, valid),
        _calibration(metadata, calibration),
        _leaks(metadata),
        section_on_licence(licence, "The weights"),
        _use(repo_id, metadata, backbone),
    )


def _data(config: ModelConfig, metadata: dict[str, Any], valid: list[str]) -> str:
    read, samples = _backbone(metadata), inline(metadata.get("samples", "an unrecorded number of"))
    hash_ = f" (sha256 {code(read.hash[:12] + '…')})" if read.hash else ""
    made_by = f"{inline(read.name)}{hash_}" if read.name else f"a backbone that was {UNKNOWN}"
    return f"""## Data

- Input: {config.windows} windows of 5 s, each {config.clips} × {config.width} features of {made_by}
- Trained on: {listed(_names(metadata, "trained_on"))}, {samples} samples
- Validated on: {listed(valid)}
- Seed: {inline(metadata.get("seed", UNKNOWN))}; kept: epoch {inline(metadata.get("epoch", UNKNOWN))}"""


def _scores(metadata: dict[str, Any], scores: dict[str, Any], valid: list[str]) -> str:
    if not scores:
        return "## Scores\n\nNone: it was trained without validation, and the last epoch was kept."
    per_class = _record(scores, "per_class")
    rows = [["mean"] + [percent(scores.get(key)) for key in WIDTHS]]
    columns = [per_class.get(key) for key in WIDTHS if key != "avg"]
    if all(isinstance(column, list) and len(column) == len(SHORT_NAMES) for column in columns):
        for c, action in enumerate(SHORT_NAMES):
            values = [column[c] for column in columns if column]
            rows.append([action, *map(percent, values), percent(sum(values) / len(values))])
    where = listed(valid) if valid else "clips held out, which ones was not recorded"
    seed = f"seed {inline(metadata['seed'])}" if "seed" in metadata else f"its seed {UNKNOWN}"
    return f"""## Scores

SN-BAA's score (mAP in %, by the full width of the tolerance) on {where}: one run, {seed}. The
epoch was chosen by this very score, so expect a little less elsewhere.

{table(["", *WIDTHS.values()], rows)}"""


def _calibration(metadata: dict[str, Any], calibration: Calibration | None) -> str:
    if calibration is None:
        inflated = metadata.get("pos_weight")
        undone = f" (its loss inflates the odds {inline(inflated)} times, which timelines undo)" if inflated else ""
        return f"## Calibration\n\nNot tuned: scores come as the network gives them{undone}."
    figures = calibration.figures
    rows = [
        ["on the samples it was fitted on", percent(figures.get("before")), percent(figures.get("after"))],
        ["on folds that had no say", percent(figures.get("outside_before")), percent(figures.get("outside_after"))],
    ]
    fitted_on = inline(calibration.fitted_on or f"a split that was {UNKNOWN}")
    return f"""## Calibration

Tuned on {fitted_on}, {figures.get("samples", 0):.0f} samples. It is for submissions: its scores rank well, and are no
chances of anything.

{table(["mAP (%)", "before", "tuned"], rows)}"""


def _leaks(metadata: dict[str, Any]) -> str:
    lines = []
    for split, count in _record(metadata, "leaks").items():
        lines.append(f"The backbone has seen {inline(count)} of the videos of {listed([split])}, validated on above.")
    if "trained_on" not in _record(metadata, "backbone"):
        lines.append("What the backbone learned from was not recorded with this model; see the backbone's own card.")
    return section_on_leaks(_backbone(metadata), lines)


def _use(repo_id: str, metadata: dict[str, Any], backbone: str | None) -> str:
    made_by = _backbone(metadata)
    command, where = f"match.mp4 --model {repo_id} --backbone {backbone or 'BACKBONE'}", ""
    if made_by.is_event_grid:
        command = f"--events match.json --model {repo_id}"
    elif backbone is None:
        where = f"\n\nBACKBONE is {inline(made_by.name or UNKNOWN)}, named above."
    return f"""## Use

```
ballcast predict {command}
```

```python
from ballcast import Anticipator

model = Anticipator.from_pretrained("{repo_id}")  # features (B, windows, clips, width) → slots
```{where}"""


def _backbone(metadata: dict[str, Any]) -> BackboneIdentity:
    """What the run recorded of the backbone, empty where it did not."""
    read = _record(metadata, "backbone")
    texts = {key: str(read.get(key) or "") for key in ("hash", "name", "note")}
    return BackboneIdentity(**texts, fold=read.get("fold"), trained_on=tuple(_names(read, "trained_on")))


def _record(tree: dict[str, Any], key: str) -> dict[str, Any]:
    """The record at `key`; an empty one if there is none. Metadata may come from anywhere."""
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


def _names(tree: dict[str, Any], key: str) -> list[str]:
    found = tree.get(key)
    return [str(name) for name in found] if isinstance(found, list | tuple) else []
