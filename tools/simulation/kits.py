"""Textures of kits, as the game's players wear them."""

import numpy as np
from numpy.typing import NDArray

from tools.simulation.look import COLOURS, Kit

SIDE = 1024  # pixels of a kit's texture; its left half is the front, its right half the back
SHIRT_ROWS, SHORTS_ROWS, SOCKS_ROWS = slice(0, 420), slice(418, 588), slice(588, 780)
BODY = slice(100, 412)  # columns of a half between the sleeves
SLEEVE_ROWS, LEFT_SLEEVE, RIGHT_SLEEVE = slice(0, 190), slice(0, 108), slice(404, 512)
STRIPE, HOOP, SASH = 39, 50, 40  # pixels wide; stripes and hoops are as far apart
BAND_ROWS = slice(150, 230)


def paint_kit(kit: Kit) -> NDArray[np.uint8]:
    """(1024, 1024, 4) uint8 RGBA, opaque."""
    texture = np.zeros((SIDE, SIDE, 4), np.uint8)
    texture[..., 3] = 255
    for half in (texture[:, : SIDE // 2, :3], texture[:, SIDE // 2 :, :3]):
        half[SHIRT_ROWS] = COLOURS[kit.shirt]
        _paint_pattern(half[SHIRT_ROWS], kit)
        half[SHORTS_ROWS] = COLOURS[kit.shorts]
    if kit.number != kit.shirt:  # on the back; at this size a spot
        back = texture[:, SIDE // 2 :, :3]
        back[110:260, 200:312] = COLOURS[kit.number]
        back[130:240, 225:240] = COLOURS[kit.shirt]
    texture[SOCKS_ROWS, :, :3] = COLOURS[kit.socks]
    return texture


def _paint_pattern(shirt: NDArray[np.uint8], kit: Kit) -> None:
    """Paint the second colour into one side of a shirt (420, 512, 3)."""
    second, body = COLOURS[kit.second], shirt[:, BODY]
    rows, columns = body.shape[:2]
    match kit.pattern:
        case "stripes":
            body[:, np.arange(columns) % (2 * STRIPE) < STRIPE] = second
        case "hoops":
            body[np.arange(rows) % (2 * HOOP) < HOOP] = second
        case "halves":
            body[:, : columns // 2] = second
        case "sash":
            middle = np.arange(rows)[:, None] * columns // rows
            across = np.arange(columns)[None]
            body[(across >= middle - SASH) & (across < middle + SASH)] = second
        case "sleeves":
            shirt[SLEEVE_ROWS, LEFT_SLEEVE] = second
            shirt[SLEEVE_ROWS, RIGHT_SLEEVE] = second
        case "band":
            body[BAND_ROWS] = second
