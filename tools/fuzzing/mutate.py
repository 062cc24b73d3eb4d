"""Ways to spoil a file: its bytes, the tree of values it holds, the archive or the header around them."""

import copy
import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

# Values that are of another type, at an edge, or only look right.
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 0.5, -0.0, 1.5, 2**31, 2**63, 10**30, -(10**30), 10**400),
    *(1e308, -1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
    *("", " ", "x", "é☃", "NaN", "31000", " 31000 ", "٣١٠٠٠", "1e3", "a" * 300, "\ud800", "\x1b[31m", "\n", "\x00"),
    *("clip_1", "../x", "/", "/etc/passwd", "C:\\x", "PASS", "visible", "1H", "9" * 400),
    *([], {}, [1], [[]], {"a": 1}, ["visible"], {"x": [1]}, [None] * 20, [0, 0, 0]),
)
ODD_YAML = (
    *(
        "&a [*a]",
        "*a",
        "!!python/object:os.system x",
        "!!int x",
        "!!timestamp x",
        "!!binary x",
        "{<<: 1}",
        "[",
        "{",
        "'",
    ),
    *("- -", "? a", "1:2:3", "2020-13-45", "0b2", "!!float x", "!!set {a}", "|\n x", "\t", "9" * 5000),
)
WORDS = ("z", "label", "é", " ", "", "format", "version", "__class__", "\ud800", "\n")
INTS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a tree of lists and dicts, below its root."""
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield (*at, key)
        yield from places(tree[key], (*at, key))


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """A copy with one to three values replaced, removed, added, doubled or exchanged."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        ways = list(places(tree))
        if not ways or rng.random() < 0.01:
            return rng.choice(ODD)
        *way, last = rng.choice(ways)
        node = tree
        for key in way:
            node = node[key]
        how = rng.random()
        if how < 0.6:
            node[last] = copy.deepcopy(rng.choice(ODD))
        elif how < 0.75:
            del node[last]
        elif how < 0.85 and isinstance(node, dict):
            node[rng.choice(WORDS)] = copy.deepcopy(rng.choice(ODD))
        elif isinstance(node, list):
            node.insert(rng.randrange(len(node) + 1), copy.deepcopy(node[last]))
        else:  # a value from elsewhere in the file
            donor = tree
            for key in rng.choice(ways):
                if not isinstance(donor, dict | list):
                    break
                try:
                    donor = donor[key]
                except (LookupError, TypeError):
                    break
            node[last] = copy.deepcopy(donor)
    return tree


def mutate_bytes(raw: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut, doubled, zeroed, exchanged, or set to the edges of whole numbers; oftener near the start."""
    spoilt = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not spoilt:
            break
        reach = len(spoilt) if rng.random() < 0.5 else min(len(spoilt), 512)
        at = rng.randrange(reach)
        size = min(rng.choice((1, 2, 4, 8, 64, 1024)), len(spoilt) - at)
        how = rng.randrange(8)
        if how == 0:
            spoilt[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            spoilt[at] = rng.randrange(256)
        elif how == 2:
            del spoilt[at : at + size]
        elif how == 3:
            spoilt[at:at] = spoilt[at : at + size] * rng.choice((1, 1, 8))
        elif how == 4:
            spoilt[at : at + size] = bytes(size)
        elif how == 5:
            code = rng.choice((">H", "<H", ">I", "<I", ">Q", "<Q"))
            width = struct.calcsize(code)
            spoilt[at : at + width] = struct.pack(code, rng.choice(INTS) & (1 << 8 * width) - 1)
        elif how == 6 and rng.random() < 0.5:
            del spoilt[at:]
        else:
            other = rng.randrange(len(spoilt))
            spoilt[at : at + size] = spoilt[other : other + size]
    return bytes(spoilt)


def mutate_json(raw: bytes, rng: random.Random) -> bytes:
    """Mostly the values in it; sometimes its bytes, its nesting or its encoding."""
    how = rng.random()
    if how < 0.15:
        return mutate_bytes(raw, rng)
    if how < 0.16:
        return rng.choice(
            (b"[" * 100_000, b'{"a":' * 5_000, b"", b"null", b"\xff\xfe", b'"x"', b"1e999", b"\xef\xbb\xbf" + raw)
        )
    spoilt = mutate_tree(json.loads(raw), rng)
    return json.dumps(spoilt, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def mutate_yaml(raw: bytes, rng: random.Random) -> bytes:
    """The same for YAML, with its tags, anchors and merges."""
    import yaml

    how = rng.random()
    if how < 0.25:
        return mutate_bytes(raw, rng)
    if how < 0.4:
        lines = raw.decode().splitlines()
        at = rng.randrange(len(lines))
        key = lines[at].partition(":")[0]
        lines[at] = f"{key}: {rng.choice(ODD_YAML)}"
        return "\n".join(lines).encode()
    spoilt = mutate_tree(yaml.safe_load(raw), rng)
    try:
        return yaml.safe_dump(spoilt, allow_unicode=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError):
        return mutate_bytes(raw, rng)


def mutate_lines(raw: bytes, rng: random.Random) -> bytes:
    """Lines of text such as overrides: one of them with another value, doubled, cut or put together of two."""
    lines = raw.decode("utf-8", "surrogateescape").split("\n")
    at = rng.randrange(len(lines))
    key, equals, value = lines[at].partition("=")
    other = rng.choice(lines)
    odd = (
        "[",
        "{}",
        "nan",
        "1e400",
        "-1",
        "null",
        "&a [*a]",
        "\t",
        "2020-01-01",
        "0x10",
        "1_000",
        "~",
        "9" * 400,
        "!!int x",
    )
    lines[at] = rng.choice(
        (
            f"{key}{equals}{rng.choice(odd)}",
            f"{key}.{other}",
            f"{other.partition('=')[0]}={value}",
            f"{key}{equals}{rng.choice(ODD)}",
            mutate_bytes(lines[at].encode("utf-8", "surrogateescape"), rng).decode("utf-8", "surrogateescape"),
        )
    )
    return "\n".join(lines).encode("utf-8", "replace").replace(b"\x00", b"")  # no argument holds a NUL


def mutate_xml(raw: bytes, rng: random.Random) -> bytes:
    """An attribute with another value, an element twice or gone, an entity, or the bytes."""
    how = rng.random()
    if how < 0.2:
        return mutate_bytes(raw, rng)
    text = raw.decode("utf-8", "replace")
    if how < 0.25:
        bombs = ('<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]>', '<!DOCTYPE x SYSTEM "file:///etc/passwd">', "<x")
        at = text.find("?>") + 2 if "?>" in text else 0
        return (text[:at] + rng.choice(bombs) + text[at:]).encode()
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = list(re.finditer(r'="([^"]*)"' if how < 0.75 else r"<[^<>]*/?>", text))
        if not found:
            break
        one, other = rng.choice(found), rng.choice(found)
        if how < 0.75:
            value = rng.choice((other[1], *(str(odd) for odd in ODD if not isinstance(odd, int) or abs(odd) < 10**40)))
            value = value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
            text = text[: one.start(1)] + value + text[one.end(1) :]
        else:
            text = text[: one.start()] + rng.choice(("", other[0], one[0] * 2)) + text[one.end() :]
    return text.encode("utf-8", "replace")


def mutate_tensors(raw: bytes, rng: random.Random) -> bytes:
    """A safetensors file: its header's JSON, the length before it, or the bytes."""
    length = int.from_bytes(raw[:8], "little")
    how = rng.random()
    if how < 0.3:
        return mutate_bytes(raw, rng)
    if how < 0.4:
        return struct.pack("<Q", rng.choice((*INTS, len(raw), len(raw) - 8, length + 1, length - 1))) + raw[8:]
    if how < 0.5:
        return raw[: rng.randrange(len(raw))]
    if how < 0.6:  # numbers that are not finite
        spoilt = bytearray(raw)
        for _ in range(rng.randrange(1, 40)):
            at = rng.randrange(8 + length, len(raw))
            spoilt[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x00\x7c\x00\x7c", b"\x00\x00\x80\x7f"))
        return bytes(spoilt[: len(raw)])
    header = json.dumps(mutate_tree(json.loads(raw[8 : 8 + length]), rng)).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(header)) + header + raw[8 + length :]


def mutate_zip(inner: Mutation) -> Mutation:
    """An archive: what is in it by `inner`, its names, its compression, or its bytes."""

    def mutate(raw: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            return mutate_bytes(raw, rng)
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            files = [(info.filename, archive.read(info)) for info in archive.infolist()]
        out = io.BytesIO()
        with zipfile.ZipFile(
            out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
        ) as made:
            for name, content in files:
                how = rng.randrange(8)
                name = (
                    rng.choice(("../" + name, "/" + name, name + "/", "x/" + name, "é", name * 20))
                    if how == 0
                    else name
                )
                content = bytes(1 << 22) if how == 1 else inner(content, rng)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of a name that is there twice
                    made.writestr(name, content)
                if how == 2:
                    made.comment = b"PK\x05\x06" * 5
                if how == 3:
                    made.writestr(name + "2", content)
        spoilt = bytearray(out.getvalue())
        if rng.random() < 0.1:
            spoilt[6] |= 1  # flagged as encrypted
        return bytes(spoilt)

    return mutate
