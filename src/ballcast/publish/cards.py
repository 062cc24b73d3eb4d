"""Model cards and data cards: the README.md of a model, a backbone or a feature store on the hub.

The text is in `templates/` (Jinja2); the YAML head is `huggingface_hub`'s, which also checks it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ballcast.core.actions import SHORT_NAMES
from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.backbone_config import BackboneIdentity

if TYPE_CHECKING:
    from ballcast.features.backbone import Backbone
    from ballcast.features.store import FeatureStore
    from ballcast.model.score_mapping import ScoreMapping

HOME = "https://github.com/ballcast/ballcast"
TAGS = ("football", "soccer", "action-anticipation", "soccernet")
TEMPLATES = Path(__file__).parent / "templates"
UNKNOWN = "not recorded"
NETWORKS = {
    "hierarchy": "the paper's hierarchical GRU with input-conditioned slot queries",
    "faantra": "FAANTRA",
    "dense": "a GRU both ways over the last 5 s, and for each action an intensity over the next 5",
}
TOLERANCES = {"at1": "1 s", "at2": "2 s", "at3": "3 s", "at4": "4 s", "at5": "5 s", "atInfty": "∞", "avg": "mean"}
_MARKUP = re.compile(r"([\\`*_\[\]<>|#])")


def model_card(
    repo_id: str,
    config: ModelConfig,
    metadata: dict[str, Any],
    score_mapping: "ScoreMapping | None",
    *,
    licence: str,
    backbone: str | None = None,
) -> str:
    """Write the card of an anticipator.

    Args:
        repo_id: the model's id on the hub, "owner/name".
        config: its network.
        metadata: as a training run records it; any part may be missing or of another type.
        score_mapping: as `ballcast tune` fitted it, if it did.
        licence: the hub's short name of the licence.
        backbone: the hub id of the backbone whose features it reads, if it has one.

    Returns:
        The text of README.md.
    """
    scores, valid = _record(metadata, "validation"), _strings(metadata, "validated_on")
    metrics = {f"mAP, {TOLERANCES[key]}": scores[key] for key in TOLERANCES if isinstance(scores.get(key), float)}
    if not isinstance(scores.get("avg"), float):
        metrics = {}
    leaks = [
        f"The backbone has seen {escape(count)} of the videos of {join_names([split])}, validated on above."
        for split, count in _record(metadata, "leaks").items()
    ]
    if "trained_on" not in _record(metadata, "backbone"):
        leaks.append("What the backbone learned from was not recorded with this model; see the backbone's own card.")
    return _render(
        "model",
        repo_id,
        licence,
        _model_head(repo_id, licence, metrics, dataset=", ".join(valid) or "validation"),
        config=config,
        network=NETWORKS[config.kind],
        run=metadata,
        trained_on=_strings(metadata, "trained_on"),
        validated_on=valid,
        scores=scores,
        score_table=_score_table(scores),
        calibration=score_mapping,
        calibration_table=_calibration_table(score_mapping),
        backbone=_identity(metadata),
        backbone_id=backbone,
        leaks=leaks,
    )


def backbone_card(repo_id: str, backbone: "Backbone", *, licence: str) -> str:
    """Write the card of a backbone.

    Args:
        repo_id: the backbone's id on the hub, "owner/name".
        backbone: with the metadata of its training, any part of which may be missing.
        licence: the hub's short name of the licence.

    Returns:
        The text of README.md.
    """
    scores = _record(backbone.metadata, "validation")
    mean = scores.get("mean_ap")
    metrics = {"mean AP, actions spotted within 1 s": mean} if isinstance(mean, float) else {}
    rows = [["mean", "", percent(mean)]] + [
        [escape(label), escape(one.get("events", "")), percent(one.get("ap"))]
        for label, one in _record(scores, "per_class").items()
        if isinstance(one, dict)
    ]
    return _render(
        "backbone",
        repo_id,
        licence,
        _model_head(repo_id, licence, metrics, dataset="held-out games", tags=("feature-extraction",)),
        config=backbone.config,
        run=backbone.metadata,
        trained_on=_strings(backbone.metadata, "trained_on"),
        started_on=_strings(backbone.metadata, "started_on"),
        scores=scores,
        score_table=table(["action", "events", "AP"], rows),
        backbone=backbone.identity,
        leaks=[],
    )


def store_card(repo_id: str, stores: Mapping[str, "FeatureStore"], *, licence: str) -> str:
    """Write the card of feature stores that one backbone made.

    Args:
        repo_id: the data set's id on the hub, "owner/name".
        stores: by the names of their splits.
        licence: the hub's short name of the licence.

    Returns:
        The text of README.md.
    """
    from huggingface_hub import DatasetCardData

    header = next(iter(stores.values())).manifest.header
    rows, leaks = [], []
    for split, store in stores.items():
        windows = sum(shard.entries * shard.windows for shard in store.manifest.shards)
        size = store.manifest.resolution
        labels = "yes" if store.labels else "no"
        resolution = f"{size[1]}×{size[0]}" if size else "–"
        failed = str(len(store.manifest.failed))
        rows.append([code(split), str(len(store)), str(windows), resolution, labels, failed])
        if seen := store.seen_in_training():
            leaks.append(f"The backbone has seen {len(seen)} of the {len(store)} videos of {code(split)}.")
    name = repo_id.rpartition("/")[2]
    data = DatasetCardData(license=licence, pretty_name=name, library_name="ballcast", tags=list(TAGS))
    return _render(
        "store",
        repo_id,
        licence,
        data.to_yaml(),
        header=header,
        split_table=table(["split", "videos", "windows", "frame size", "labels", "unreadable"], rows),
        first_split=next(iter(stores)),
        backbone=header.backbone,
        leaks=leaks,
    )


def escape(value: object) -> str:
    """Make one line of a value from elsewhere, with Markdown and HTML escaped."""
    return _MARKUP.sub(r"\\\1", " ".join(str(value).split()))


def code(value: object) -> str:
    """Make a code span of a value from elsewhere."""
    return f"`{' '.join(str(value).replace('`', '').split())}`"


def join_names(names: Iterable[object], most: int = 20) -> str:
    """List names as code: "`a`, `b` and 3 more"."""
    spans = [code(name) for name in names]
    more = f" and {len(spans) - most} more" if len(spans) > most else ""
    return (", ".join(spans[:most]) + more) or UNKNOWN


def percent(value: object) -> str:
    """Write a fraction in percent; "–" for what is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{100 * value:.2f}" if is_number else "–"  # type: ignore[operator]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a Markdown table, its first column aligned to the left."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _render(kind: Literal["model", "backbone", "store"], repo_id: str, licence: str, head: str, **context: Any) -> str:
    """Fill the template of this kind of card; `head`: its YAML."""
    from huggingface_hub import DatasetCard, ModelCard
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "text": escape,
        "names": join_names,
        "short_hash": lambda value: code(f"{str(value)[:12]}…"),
    }
    name = repo_id.rpartition("/")[2]
    text = environment.get_template(f"{kind}_card.md.j2").render(
        repo_id=repo_id, name=name, licence=licence, head=head.strip(), home=HOME, unknown=UNKNOWN, **context
    )
    (DatasetCard if kind == "store" else ModelCard)(text)  # raises if the hub could not read the head
    return text


def _model_head(
    repo_id: str, licence: str, metrics: Mapping[str, float], *, dataset: str, tags: Sequence[str] = ()
) -> str:
    """Make the YAML head of a model's card; `metrics`: fractions by name, measured on `dataset`."""
    from huggingface_hub import EvalResult, ModelCardData

    task = "video-classification"
    results = [
        EvalResult(
            task_type=task,
            dataset_type="ballcast-features",
            dataset_name=dataset,
            metric_type="mean_average_precision",
            metric_name=name,
            metric_value=round(100 * value, 4),
        )
        for name, value in metrics.items()
    ]
    return ModelCardData(
        library_name="ballcast",
        license=licence,
        tags=[*TAGS, *tags],
        pipeline_tag=task,
        model_name=repo_id.rpartition("/")[2] if results else None,
        eval_results=results or None,
    ).to_yaml()


def _score_table(scores: dict[str, Any]) -> str:
    """Make the table of mAP by tolerance, in all and by action."""
    per_class = _record(scores, "per_class")
    rows = [["mean"] + [percent(scores.get(key)) for key in TOLERANCES]]
    columns = [per_class.get(key) for key in TOLERANCES if key != "avg"]
    if all(isinstance(column, list) and len(column) == len(SHORT_NAMES) for column in columns):
        for c, action in enumerate(SHORT_NAMES):
            values = [column[c] for column in columns if column]
            rows.append([action, *map(percent, values), percent(sum(values) / len(values))])
    return table(["", *TOLERANCES.values()], rows)


def _calibration_table(score_mapping: "ScoreMapping | None") -> str:
    figures = score_mapping.figures if score_mapping else {}
    rows = [
        ["on the samples it was fitted on", percent(figures.get("before")), percent(figures.get("after"))],
        [
            "on folds it was not fitted on",
            percent(figures.get("outside_before")),
            percent(figures.get("outside_after")),
        ],
    ]
    return table(["mAP (%)", "before", "tuned"], rows)


def _identity(metadata: dict[str, Any]) -> BackboneIdentity:
    """Read what a run recorded of its backbone; empty where it did not."""
    read = _record(metadata, "backbone")
    texts = {key: str(read.get(key) or "") for key in ("hash", "name", "note")}
    return BackboneIdentity(**texts, fold=read.get("fold"), trained_on=tuple(_strings(read, "trained_on")))


def _record(tree: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the record at `key`, or an empty one: metadata may come from anywhere."""
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


def _strings(tree: dict[str, Any], key: str) -> list[str]:
    found = tree.get(key)
    return [str(name) for name in found] if isinstance(found, list | tuple) else []
