"""exposition.py - Prometheus' text format 0.0.4, read strictly: what it does not allow is an AssertionError."""
import collections
import math
import re

import requests

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)$")
TYPES = ("counter", "gauge", "histogram")


class Figures(dict):
    """{(name, frozenset of (label, value)): value}; families: {name: type}."""

    def __init__(self):
        super().__init__()
        self.families = {}

    def sum(self, name, /, **labels):
        """Of all samples of a name that have these labels; 0 if there is none."""
        return sum(v for (n, found), v in self.items() if n == name and set(labels.items()) <= found)

    def labels(self, name, label):
        return {dict(found).get(label) for n, found in self if n == name}


def labels_of(text):
    found, at = [], 0
    while at < len(text):
        m = LABEL.match(text, at)
        assert m, f"labels: {text!r} at {at}"
        found.append((m[1], m[2]))
        at = m.end()
        assert m[3] == "," or at == len(text)
    assert not text.endswith(","), text
    assert len({k for k, _ in found}) == len(found), f"a label twice: {text!r}"
    return frozenset(found)


def parse(text):
    figures, now = Figures(), None
    assert text.endswith("\n") or not text, "the last line has no end"
    lines = text.split("\n")[:-1]
    for i, line in enumerate(lines):
        assert line and line == line.strip(), f"line {i + 1}: {line!r}"
        if line.startswith("# HELP "):
            m = re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line)
            assert m and m[1] not in figures.families, f"line {i + 1}: {line!r}"
            assert i + 1 < len(lines) and lines[i + 1].startswith(f"# TYPE {m[1]} "), f"no TYPE behind {line!r}"
        elif line.startswith("#"):
            m = re.fullmatch(rf"# TYPE ({NAME}) (\w+)", line)
            assert m and m[2] in TYPES and m[1] not in figures.families, f"line {i + 1}: {line!r}"
            assert lines[i - 1].startswith(f"# HELP {m[1]} "), f"no HELP in front of {line!r}"
            now = m[1]
            figures.families[now] = m[2]
            assert m[1].startswith("abies_") and (m[2] == "counter") == m[1].endswith("_total"), line
        else:
            take(figures, now, line)
    for name, kind in figures.families.items():
        if kind == "histogram":
            check_histogram(figures, name)
    return figures


def take(figures, now, line):
    m = SAMPLE.fullmatch(line)
    assert m, line
    kind = figures.families[now]
    endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    assert m[1] in {now + e for e in endings}, f"{line!r} stands under {now}"
    value = float(m[3].replace("Inf", "inf"))
    assert not math.isnan(value) and (kind == "gauge" or value >= 0), line
    key = (m[1], labels_of(m[2] or ""))
    assert key not in figures, f"twice: {line!r}"
    figures[key] = value


def check_histogram(figures, name):
    series = collections.defaultdict(list)
    for (n, labels), value in figures.items():
        if n == name + "_bucket":
            end = dict(labels)["le"]
            rest = frozenset((k, v) for k, v in labels if k != "le")
            series[rest].append((float(end.replace("Inf", "inf")), value))
    for labels, buckets in series.items():
        ends = [e for e, _ in buckets]
        assert ends == sorted(ends) and ends[-1] == math.inf, f"{name}{set(labels)}: {ends}"
        counts = [c for _, c in buckets]
        assert counts == sorted(counts), f"{name}{set(labels)}: {counts}"
        assert figures[(name + "_count", labels)] == counts[-1]
        assert (name + "_sum", labels) in figures
    assert len(series) == sum(n == name + "_count" for n, _ in figures)


def scrape(address):
    url = address if address.startswith("http") else f"http://{address}"
    with requests.get(url.rstrip("/") + "/metrics", timeout=10) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/plain"), (r.status_code, r.headers)
        return parse(r.text)
