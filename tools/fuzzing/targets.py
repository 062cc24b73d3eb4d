"""All targets, and the corpus of what was found."""

from pathlib import Path

from tools.fuzzing import media, stores, texts
from tools.fuzzing.target import Target

TARGETS: tuple[type[Target], ...] = (
    *(texts.Labels, texts.HalvesLabels, texts.Matches, texts.OslJson, texts.Submission, texts.SubmissionZip),
    *(texts.RecipeYaml, texts.PretrainYaml, texts.Overrides, texts.Variants, texts.Wyscout, texts.EventTable),
    *(stores.Manifest, stores.ShardFile, stores.StoreLabels, stores.EventsFile, stores.Imported, stores.PartsHeader),
    *(stores.Model, stores.ModelWeights, stores.CalibrationFile, stores.BackboneFolder, stores.BackboneWeights),
    *(stores.PublishedCheckpoint, stores.SavedRun, stores.SavedSteps),
    *(media.Video, media.Playlist, media.Stdin, media.Upload, media.UploadedLabels, media.Request),
)
KINDS = tuple(dict.fromkeys(target.kind for target in TARGETS))
CORPUS = Path(__file__).parents[2] / "tests" / "corpus"


def corpus_files(name: str) -> list[Path]:
    """What was found for the target of this name."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
