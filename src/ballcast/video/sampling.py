"""Where the windows of a stream begin."""


def snap(start: int, stride: int) -> int:
    """The latest frame of the grid (every `stride` frames from the video's first) that is not after `start`.

    Rolling and live prediction begin their windows there, so that windows a second apart share their clips' features;
    not later, so that no window sees beyond its own end.
    """
    return start - start % stride
