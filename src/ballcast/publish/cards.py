"""Model cards and data cards: the README.md of a model, a backbone or a store on the hub, from what is known of it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from ballcast.core.actions import SHORT_NAMES
from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.backbone_config import BackboneIdentity

if TYPE_CHECKING:
    from ballcast.features.backbone import Backbone
    from ballcast.features.store import FeatureStore
    from ballcast.model.score_mapping import ScoreMapping


HOME = "https://github.com/ballcast/ballcast"
TAGS = ("football", "soccer", "action-anticipation", "soccernet")
UNKNOWN = "not recorded"
_MARKS = re.compile(r"([\\`*_\[\]<>|#])")


def card(front: Mapping[str, Any], *sections: str) -> str:
    """The hub's fields as YAML front matter, then the sections, a blank line between them."""
    matter = yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True)
    return f"---\n{matter}---\n\n" + "\n\n".join(section.strip() for section in sections if section) + "\n"


def inline(value: object) -> str:
    """Text from elsewhere as one line that stays text: no mark-up, no table cell, no link."""
    return _MARKS.sub(r"\\\1", " ".join(str(value).split()))


def code(value: object) -> str:
    """Text from elsewhere as a span of code."""
    return f"`{' '.join(str(value).replace('`', '').split())}`"


def listed(names: Iterable[object], most: int = 20) -> str:
    """`a`, `b` and 3 more."""
    told = [code(name) for name in names]
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return (", ".join(told[:most]) + more) or UNKNOWN


def percent(value: object) -> str:
    """A fraction in percent; – where there is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{100 * value:.2f}" if is_number else "–"  # type: ignore[operator]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def section_on_licence(licence: str, what: str) -> str:
    return f"""## Licence

{what}: {inline(licence)}. The videos and labels behind them have terms of their own, which this licence does not
change (SN-BAA: SoccerNet's NDA)."""


def result(name: str, task: str, data: str, metrics: Mapping[str, float]) -> dict[str, Any]:
    """One entry of the hub's `model-index`; metrics in percent."""
    told = [{"type": "mean_average_precision", "name": key, "value": round(v, 4)} for key, v in metrics.items()]
    dataset = {"name": data, "type": "ballcast-features"}
    return {"name": name, "results": [{"task": {"type": task}, "dataset": dataset, "metrics": told}]}


def backbone_card(repo_id: str, backbone: "Backbone", *, licence: str) -> str:
    """README.md for a backbone; `licence`: the hub's short name of it."""
    name, c, about = repo_id.rpartition("/")[2], backbone.config, backbone.metadata
    scores = about.get("validation") if isinstance(about.get("validation"), dict) else None
    front: dict[str, Any] = {
        "library_name": "ballcast",
        "license": licence,
        "tags": [*TAGS, "feature-extraction"],
        "pipeline_tag": "video-classification",
    }
    if scores and isinstance(scores.get("mean_ap"), float):
        told = {"mean AP, actions spotted within 1 s": 100 * scores["mean_ap"]}
        front["model-index"] = [result(name, "video-classification", "held-out games", told)]
    trained, began = (about.get(key, ()) for key in ("trained_on", "started_on"))
    named = f" ({code(str(about['start_hash'])[:12] + '…')})" if "start_hash" in about else ""
    before = named + (f", which had learned from {listed(began)}" if began else "")
    task = "spot ball actions, then to anticipate them" if about.get("task") == "anticipation" else "spot ball actions"
    return card(
        front,
        f"""# {inline(name)}

A backbone that turns broadcast video of football into features: a vector of {c.width} for every clip of {c.frames}
pictures, one clip every {c.stride} frames at 25 a second. It was trained to {task}, and is called
{inline(backbone.name)} (sha256 `{backbone.hash[:12]}…`) in the stores made with it. Written by [ballcast]({HOME})
{inline(about.get("ballcast", ""))}.""",
        f"""## Data

- Weights it started from: {inline(about.get("start", UNKNOWN))}{before}
- Trained on: {listed(trained)}
- Seed: {inline(about.get("seed", UNKNOWN))}; kept: epoch {inline(about.get("epoch", UNKNOWN))}""",
        _spotting(scores),
        f"""## Calibration

None: nothing but its features is used.

{section_on_leaks(backbone.identity)}""",
        section_on_licence(licence, "The weights"),
        f"""## Use

```
ballcast extract videos features --backbone {repo_id}
```

```python
from ballcast import Backbone

backbone = Backbone.from_pretrained("{repo_id}")
features = backbone.clips(frames)  # (T, H, W) uint8 at 25 fps → (n, {c.width})
```""",
    )


def _spotting(scores: dict[str, Any] | None) -> str:
    if scores is None:
        return "## Scores\n\nNone are recorded."
    classes = scores.get("per_class")
    rows = [["mean", "", percent(scores.get("mean_ap"))]]
    for label, one in classes.items() if isinstance(classes, dict) else ():
        if isinstance(one, dict):
            rows.append([inline(label), inline(one.get("events", "")), percent(one.get("ap"))])
    least = scores.get("least_events")
    which = f" The mean is over the actions with at least {inline(least)} events." if least else ""
    return f"""## Scores

Average precision (%) of the actions spotted within 1 s on the held-out games. The epoch was chosen by this very
score, so expect a little less elsewhere.{which}

{table(["action", "events", "AP"], rows)}"""


def store_card(repo_id: str, stores: Mapping[str, "FeatureStore"], *, licence: str) -> str:
    """README.md for feature stores of one backbone by the names of their splits."""
    name, first = repo_id.rpartition("/")[2], next(iter(stores.values()))
    made_by, header = first.manifest.header.backbone, first.manifest.header
    rows, leaks = [], []
    for split, store in stores.items():
        windows = sum(shard.entries * shard.windows for shard in store.manifest.shards)
        size = store.manifest.resolution
        failed = len(store.manifest.failed)
        labels = "yes" if store.labels else "no"
        resolution = f"{size[1]}×{size[0]}" if size else "–"
        rows.append([code(split), str(len(store)), str(windows), resolution, labels, str(failed)])
        if seen := store.seen_in_training():
            leaks.append(f"The backbone has seen {len(seen)} of the {len(store)} videos of {code(split)}.")
    way = header.preprocessing
    arithmetic = f" in {way.precision}" if way else ""
    return card(
        {"library_name": "ballcast", "license": licence, "tags": list(TAGS), "pretty_name": name},
        f"""# {inline(name)}

Features of football matches for [ballcast]({HOME}): windows of 5 s, one every {header.every} frames at {header.fps} a
second, each {header.clips} × {header.width} numbers (float16), made by {inline(made_by.name)}{arithmetic}
(sha256 {code(made_by.hash[:12] + "…")}). A model reads only features of the backbone it was trained on.""",
        f"""## Data

{table(["split", "videos", "windows", "pictures", "labels", "unreadable"], rows)}

A folder for each split; each says all of this in its `manifest.json`.""",
        section_on_leaks(made_by, leaks),
        section_on_licence(licence, "The features"),
        f"""## Use

```
ballcast train paper data.features={repo_id}
```

```python
from ballcast.features.store import FeatureStore

store = FeatureStore.from_pretrained("{repo_id}", "{next(iter(stores))}")
store.windows(store.names[0])  # (windows, {header.clips}, {header.width})
```""",
    )


def section_on_leaks(backbone: BackboneIdentity, more: Sequence[str] = ()) -> str:
    """What a reader of scores must know of the backbone behind them; `more`: sentences that come first."""
    lines = list(more)
    if backbone.trained_on:
        lines.append(f"The backbone learned from {listed(backbone.trained_on)}: scores on these are too good.")
    if backbone.fold is not None:
        lines.append(f"The backbone is of a cross-validation; the fold held out is {inline(backbone.fold)}.")
    if backbone.note:
        lines.append(f"Noted of the backbone: {inline(backbone.note)}.")
    return "## Known leaks\n\n" + ("\n".join(f"- {line}" for line in lines) or "None that its records show.")


WIDTHS = {"at1": "1 s", "at2": "2 s", "at3": "3 s", "at4": "4 s", "at5": "5 s", "atInfty": "∞", "avg": "mean"}


def write_card(
    repo_id: str,
    config: ModelConfig,
    metadata: dict[str, Any],
    calibration: "ScoreMapping | None",
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


def _calibration(metadata: dict[str, Any], calibration: "ScoreMapping | None") -> str:
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
