"""The cards of a backbone and of feature stores: what they learned from or were made of, and what to be wary of."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from ballcast.features.manifest import BackboneIdentity

if TYPE_CHECKING:
    from ballcast.features.backbone import Backbone
    from ballcast.features.store import FeatureStore


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
