"""The one list of ball actions, in submission order, and the clock they are anticipated on."""

ACTIONS = (
    "PASS",
    "DRIVE",
    "HEADER",
    "HIGH PASS",
    "THROW IN",
    "CROSS",
    "SHOT",
    "OUT",
    "BALL PLAYER BLOCK",
    "PLAYER SUCCESSFUL TACKLE",
)
SHORT_NAMES = ("pass", "drive", "header", "high pass", "throw in", "cross", "shot", "out", "block", "tackle")
ACTION_INDEX = {label: i for i, label in enumerate(ACTIONS)}

# Labels of the spotting task on the same games that anticipation does not have: ignored, never an error.
IGNORED_LABELS = frozenset({"FREE KICK", "GOAL"})

FPS = 25
OBSERVED_MS = 30_000  # what the model sees
HORIZON_MS = 5_000  # what it anticipates
END_MS = OBSERVED_MS + HORIZON_MS
FRAME_MS = 1000 // FPS
CLIP_FRAMES = OBSERVED_MS // FRAME_MS
WINDOW_FRAMES = 125  # the observation is read in windows of 5 s
MAX_EVENTS = 8  # a sample keeps the first 8 of its events to come; the exact assignment takes no more
