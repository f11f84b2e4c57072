"""Pickles as Python makes them, and what a site must read from them.

    pickles.py                 lines of label, base64, JSON of the value or `!` and a part of the refusal
    pickles.py --short         those that pickles.txt has
    pickles.py --random SEED   the same form: a thousand values at random, in all protocols
    pickles.py --corpus DIR    one file each, for the fuzz target
"""
import argparse
import array
import base64
import collections
import datetime
import decimal
import json
import os
import pathlib
import pickle
import pickletools
import random
import struct
import sys

DIGITS = 4300
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)


def plain(value):
    """The value as JSON has it for us."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key): plain(v)
                for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, int) and not -2**63 <= value < 2**63:
        return str(value)
    return value


def flavours(value):
    """Each protocol, by the pickler in C and the one in Python, and shortened."""
    for protocol in range(6):
        first = pickle.dumps(value, protocol)
        yield f"p{protocol}", first
        other = pickle._dumps(value, protocol)
        if other != first:
            yield f"p{protocol}-py", other
        short = pickletools.optimize(first)
        if short != first:
            yield f"p{protocol}-opt", short


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


shared = [1, "two", (3,)]
GOOD = {
    "empty": {},
    "texts": {"name": "value", "empty": "", "both": "it's \"quoted\" \\ back\\u0041slash\nnewline\ttab\r", "long": "x" * 300, "huge": "y" * 70000},
    "unicode": {"schlüssel": "grün €", "high": "\U0001f332 \x80\xff\u0100", "control": "\x01\x1a\x7f"},
    "numbers": {"zero": 0, "one": 1, "byte": 255, "more": 256, "word": 65535, "over": 65536, "minus": -1, "int": 2**31 - 1, "least": -2**31, "big": 2**31,
                "max": 2**63 - 1, "min": -2**63},
    "beyond": {"above": 2**63, "below": -2**63 - 1, "exact": 2**64, "power": 2**72, "minus": -2**72, "odd": -(2**71) - 1, "far": 10**80, "least": -10**300,
               "most": 10**DIGITS - 1, "mostminus": 1 - 10**DIGITS},
    "reals": {"one": 1.0, "tenth": 0.1, "tiny": 5e-324, "huge": 1.7976931348623157e308, "minus": -2.5, "nought": -0.0},
    "flags": {"yes": True, "no": False, "none": None},
    "parts": {"list": [1, [2, [3, []]]], "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "dict": {"a": {"b": {"c": {}}}}, "many": list(range(3000))},
    "keys": {"x": {1: "int", True: "bool", None: "none", 2**70: "big"}},
    "shared": {"a": shared, "b": shared, "c": [shared, shared]},
    "wide": {f"key{i}": i for i in range(2500)},
    "deep": {"d": nested(63)},
}


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/abies-owned",)


class Thing:
    def __init__(self):
        self.x = 1


class Slots:
    __slots__ = ("x",)

    def __getnewargs_ex__(self):
        return (), {}


def itself():
    value = {"a": []}
    value["a"].append(value)
    return value


def through_tuple():
    inner = []
    inner.append((inner, 1))
    return {"a": inner}


def laughs():
    value = ["ha"] * 10
    for _ in range(9):
        value = [value] * 10
    return {"a": value}


def long_laughs():
    text = "ha" * 60000
    return {"a": [text] * 100}


def with_memo(prefix, index):
    return b"\x80\x02}q\x00" + prefix + struct.pack("<I", index) + b"."


# Python writes these.
MADE = [
    ("system", {"x": Evil()}, "system"),
    ("object", {"x": Thing()}, "names the Python object"),
    ("slots", {"x": Slots()}, "names the Python object"),
    ("function", {"x": os.getcwd}, "names the Python object"),
    ("class", {"x": Thing}, "names the Python object"),
    ("bytes", {"x": b"\x00\xff"}, "nothing is executed"),
    ("bytearray", {"x": bytearray(b"abc")}, "nothing is executed"),
    ("set", {"x": {1, 2}}, "nothing is executed"),
    ("frozenset", {"x": frozenset((1, 2))}, "nothing is executed"),
    ("date", {"x": datetime.datetime(2024, 1, 2)}, "datetime.datetime"),
    ("decimal", {"x": decimal.Decimal("1.5")}, "decimal.Decimal"),
    ("complex", {"x": 1j}, "complex"),
    ("ordered", collections.OrderedDict(a=1), "OrderedDict"),
    ("array", {"x": array.array("d", [1.0])}, "array"),
    ("inf", {"x": float("inf")}, "infinite or not a number"),
    ("nan", {"x": float("nan")}, "infinite or not a number"),
    ("digits", {"x": 10**DIGITS}, "more than 4300 digits"),
    ("digits-far", {"x": 1 << 300000}, "more than 4300 digits"),
    ("nul", {"x": "a\0b"}, "NUL"),
    ("surrogate", {"x": "\ud800"}, "UTF-8"),
    ("tuple-key", {"x": {(1, 2): 3}}, "key that is neither"),
    ("real-key", {"x": {1.5: 3}}, "key that is neither"),
    ("itself", itself(), "contains itself"),
    ("through-tuple", through_tuple(), "contains itself"),
    ("laughs", laughs(), "more than 100000 values"),
    ("long-laughs", long_laughs(), "more than 100000 values or 512 kB"),
    ("too-deep", {"d": nested(64)}, "deeper than 64"),
    ("too-many", {"x": [1] * 100001}, "more than 100000 values"),
]

# Nobody's pickler writes these.
CRAFTED = [
    ("nothing", b"", "ends too early"),
    ("only-proto", b"\x80\x04", "ends too early"),
    ("newer", b"\x80\x06N.", "newer than 5"),
    ("stop", b".", "empty stack"),
    ("no-stop", b"\x80\x04}", "ends too early"),
    ("trailing", pickle.dumps({"a": 1}) + b"\x00", "something follows"),
    ("frame", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "ends too early"),
    ("text-short", b"X\xff\xff\xff\x7fabc.", "ends too early"),
    ("text-huge", b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.", "ends too early"),
    ("long-negative", b"\x8b\xff\xff\xff\xff\x01.", "ends too early"),
    ("unknown", b"\xff.", "0xff"),
    ("memo-far", with_memo(b"r", 0xffffffff), "too large"),
    ("memo-empty", with_memo(b"j", 7), "never stored"),
    ("memo-name", b"}gx\n.", "is none"),
    ("memo-nothing", b"\x94.", "empty stack"),
    ("no-mark", b"}u.", "mark"),
    ("odd", b"}(NNNu.", "key without a value"),
    ("odd-dict", b"(NNNd.", "key without a value"),
    ("below-mark", b"N(a.", "empty stack"),
    ("append-number", b"K\x01K\x02a.", "no list or dict"),
    ("append-tuple", b")K\x02a.", "no list or dict"),
    ("append-dict", b"}K\x02a.", "no list or dict"),
    ("set-list", b"]K\x01K\x02s.", "no list or dict"),
    ("setitem-nothing", b"}K\x01s.", "empty stack"),
    ("marks", b"(" * 1000 + b".", "empty stack"),
    ("int-letters", b"I12x\n.", "something else"),
    ("int-none", b"I\n.", "without digits"),
    ("int-endless", b"I1", "without its end"),
    ("real-letters", b"Fabc\n.", "float that is none"),
    ("real-hex", b"F0x10\n.", "float that is none"),
    ("real-inf", b"Finf\n.", "infinite"),
    ("escape", b"V\\u12g4\n.", "escape"),
    ("escape-far", b"V\\U00110000\n.", "escape"),
    ("utf8", b"X\x02\x00\x00\x00\xc3(.", "UTF-8"),
    ("global", b"cos\nsystem\n(S'id'\ntR.", "os.system (GLOBAL"),
    ("global-bytes", b"c\x1b[31m\n\x00\xff\n.", "?[31m. (GLOBAL"),
    ("inst", b"(S'id'\nios\nsystem\n.", "STRING"),
    ("inst-plain", b"(ios\nsystem\n.", "os.system (INST"),
    ("obj", b"(K\x01o.", "OBJ"),
    ("reduce", b"K\x01K\x02R.", "REDUCE"),
    ("build", b"K\x01K\x02b.", "BUILD"),
    ("newobj", b"K\x01K\x02\x81.", "NEWOBJ"),
    ("newobj-ex", b"K\x01K\x02K\x03\x92.", "NEWOBJ_EX"),
    ("ext1", b"\x82\x01.", "EXT1"),
    ("ext2", b"\x83\x01\x00.", "EXT2"),
    ("ext4", b"\x84\x01\x00\x00\x00.", "EXT4"),
    ("persid", b"Pfile\n.", "PERSID"),
    ("binpersid", b"K\x01Q.", "BINPERSID"),
    ("string", b"S'x'\n.", "STRING"),
    ("binstring", b"T\x01\x00\x00\x00x.", "BINSTRING"),
    ("short-binstring", b"U\x01x.", "SHORT_BINSTRING"),
    ("binbytes", b"B\x01\x00\x00\x00x.", "BINBYTES"),
    ("short-binbytes", b"C\x01x.", "SHORT_BINBYTES"),
    ("binbytes8", b"\x8e\x01\x00\x00\x00\x00\x00\x00\x00x.", "BINBYTES8"),
    ("bytearray8", b"\x96\x01\x00\x00\x00\x00\x00\x00\x00x.", "BYTEARRAY8"),
    ("empty-set", b"\x8f.", "EMPTY_SET"),
    ("additems", b"(K\x01\x90.", "ADDITEMS"),
    ("frozenset", b"(K\x01\x91.", "FROZENSET"),
    ("buffer", b"\x97.", "NEXT_BUFFER"),
    ("readonly", b"K\x01\x98.", "READONLY_BUFFER"),
    ("stack-global", b"\x8c\x02os\x8c\x06system\x93.", "os.system (STACK_GLOBAL"),
    ("stack-global-numbers", b"K\x01K\x02\x93.", "names a Python object (STACK_GLOBAL"),
]

# Odd, but Python reads them as well.
ODD = [
    ("popped", b"K\x01K\x020.", "1"),
    ("popped-mark", b"K\x01(K\x02K\x031.", "1"),
    ("popped-empty", b"K\x01(0.", "1"),
    ("twice", b"]K\x012\x86a.", "[[1,1]]"),
    ("same-key", b"}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00aK\x02u.", '{"a":1,"a":2}'),
    ("old-flags", b"(I01\nI00\nI1\nl.", "[true,false,1]"),
    ("zeros", b"(I-0\nI0007\nL-12L\nL+5\nl.", "[0,7,-12,5]"),
    ("empty-long", b"\x8a\x00.", "0"),
    ("padded-long", b"\x8a\x0c\x05" + 11 * b"\x00" + b".", "5"),
    ("padded-minus", b"\x8a\x0c\xfe" + 11 * b"\xff" + b".", "-2"),
]


def lines():
    for name, value in GOOD.items():
        for flavour, data in flavours(value):
            yield f"{name}-{flavour}", data, json.dumps(plain(value))
    for name, value, why in MADE:
        for protocol in range(2 if name == "slots" else 0, 6):
            yield f"{name}-p{protocol}", pickle.dumps(value, protocol), "!" + why
    for name, data, why in CRAFTED:
        yield name, data, "!" + why
    for name, data, text in ODD:
        yield name, data, text


def some(rng, depth):
    kind = rng.randrange(10 if depth else 7)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.getrandbits(rng.choice((1, 8, 16, 31, 32, 63, 64, 65, 200, 3000))) * rng.choice((1, -1))
    if kind == 2:
        return rng.choice((rng.random(), rng.gauss(0, 1e300), rng.gauss(0, 1e-300), float(rng.randrange(-1000, 1000))))
    if kind < 7:
        return "".join(chr(rng.choice((rng.randrange(1, 128), rng.randrange(1, 256), rng.randrange(1, 0xd800), rng.randrange(0xe000, 0x110000))))
                       for _ in range(rng.choice((0, 1, 5, 40))))
    size = rng.choice((0, 1, 2, 3, 4, 9))
    if kind == 7:
        return {some(rng, 0) if rng.random() < 0.1 else f"k{i}": some(rng, depth - 1) for i in range(size)}
    parts = [some(rng, depth - 1) for _ in range(size)]
    parts += parts[:rng.randrange(2)]
    return parts if kind == 8 else tuple(parts)


def float_key(value):
    if isinstance(value, dict):
        return any(isinstance(k, float) or float_key(v) for k, v in value.items())
    return isinstance(value, (list, tuple)) and any(map(float_key, value))


def same_key_twice(value):
    """1 and "1" are two keys for Python, and one for JSON."""
    if isinstance(value, dict):
        return len(plain(value)) < len(value) or any(map(same_key_twice, value.values()))
    return isinstance(value, (list, tuple)) and any(map(same_key_twice, value))


def random_lines(seed):
    rng = random.Random(seed)
    for i in range(1000):
        value = {f"p{k}": some(rng, 4) for k in range(rng.randrange(6))}
        if same_key_twice(value):
            continue
        data = rng.choice([d for _, d in flavours(value)])
        yield f"random-{i}", data, "!key that is neither" if float_key(value) else json.dumps(plain(value))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--random", type=int)
    options.add_argument("--short", action="store_true")
    options.add_argument("--corpus", type=pathlib.Path)
    given = options.parse_args()
    made = lines() if given.random is None else random_lines(given.random)
    if given.corpus:
        given.corpus.mkdir(parents=True, exist_ok=True)
        for name, data, _ in made:
            if len(data) < 700 and (name.endswith(("-p0", "-p4")) or "-p" not in name):
                (given.corpus / name).write_bytes(data)
        return
    for name, data, expected in made:
        if given.short and len(data) > 600:
            continue
        print(name, base64.b64encode(data).decode() or "-", expected)


if __name__ == "__main__":
    main()
