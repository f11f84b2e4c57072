"""hostile.py - values that no well-meant client sends, and a client that sends them byte by byte."""
import copy
import http.client
import json
import socket
import ssl
from urllib.parse import urlsplit

DEEP = 100

# JSON texts to put in the place of a value
JSON_VALUES = [
    "null", "true", "0", "-1", "1.5", "-0.0", "1e3", "1e400", "-1e400", "1e-400", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1" * 400,
    '""', '"x"', '"0"', '" 7 "', '"-"', '"1e5"', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udc00\\ud800"', '"\\u202e\\ufeff\\uffff"', '"\U0001F332\u0301"', '"%s%n%00"',
    '"\'; DROP TABLE jobs; --"', '"$1 :x {{n}} %(a)s"', '"/"', '"../../etc/passwd"', '"' + "x" * 70000 + '"', '"' + "\U0001F332" * 300 + '"', '"' + "/a" * 300 + '"',
    '"2026-02-30T00:00:00"', '"9999-12-31T23:59:59.999999"', '"0001-01-01T00:00:00+14:00"', '"infinity"', '"nan"', '"JOB_FINISHED"', '"CREATED"',
    "[]", "{}", "[null]", "[[]]", '[1,"2",true,3.9]', '{"":""}', '{"a":null}', '{"a":{"b":{"c":[]}}}', '{"__proto__":1,"1":{"x":1}}', '{"\\u0000":1}', '{"a":1,"a":"2"}',
    "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[" + ",".join(["9" * 19] * 1000) + "]", "{" + ",".join(f'"k{i}":"v"' for i in range(2000)) + "}",
]

# bytes to send as a whole body
BODIES = [
    b"", b" ", b"null", b"true", b"0", b'"x"', b"[]", b"{}", b"[null]", b"[[]]", b"[{}]", b"[{},{}]", b"{", b"[", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,}', b"[1,]", b"{,}", b"[1 2]", b"{} {}", b"{}x",
    b"'a'", b"{'a':1}", b"{a:1}", b"NaN", b"[Infinity]", b"[01]", b"[1.]", b"[.5]", b"[+1]", b"[1e]", b"[0x1]", b"tru", b"nullx", b'"\n"', b'"\t"', b'["\\x41"]', b'["\\u12"]', b'["\\', b'["abc',
    b"\x00", b"{}\x00", b'{"\x00":1}', b'["\xff"]', b'["\xc0\x80"]', b'["\xed\xa0\x80"]', b'["\xf5\x80\x80\x80"]', b"\xef\xbb\xbf{}", b"\xef\xbb\xbf[]", '{"a":1}'.encode("utf-16"), '[1]'.encode("utf-32-le"),
    b"// x\n{}", b"/* */[]", b"[" * 100000, b'{"a":' * 50000, b"[" * 65 + b"]" * 65, b"[" + b"{}," * 6000 + b"{}]", b"[" + b"0," * 20000 + b"0]", b" " * 100000 + b"{}", b"%7B%7D", b"a=b&c=d", b"<x/>",
]

# percent-encoded texts to put behind `name=`
QUERY_VALUES = [
    "", "x", "0", "-1", "1.5", "1e3", "%2B1", "+1", "1_000", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 400, "null", "true", "NaN", "%00", "a%00b", "%FF", "%C0%80",
    "%ED%A0%80", "%zz", "%", "%1", "%25%30%30", "%F0%9F%8C%B2", "a:b", ":", "a:", ":b", "a:%00", "a:b:c", "%22", "%5C", "%25%25", "_", "'", "--", "2026-01-02T03:04:05", "2026-01-02+03:04:05%2B00:00",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00", "infinity", "2026-02-30T00:00:00", "[1]", "1,2", "RUNNING", "-id", "pending", "in", "x" * 5000, "%F0%9F%8C%B2" * 2000, "1-1", "0-0", "18446744073709551615-1",
]

PATH_VALUES = ["0", "-1", "1.5", "x", "%20", "1%20", "%2B1", "1e3", "2147483648", "9223372036854775807", "9223372036854775808", "1" * 400, "%00", "1%00", "%FF", "%zz", "%", "%2F", "..", ".", "null", "true", "%D9%A1", "'", "{id}", "x" * 5000, "1;2", "1%3B2"]

CONTENT_TYPES = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "x", "", ";", "application/json; charset=utf-16", "application/json" * 100]

HEADERS = [{"idempotency-key": v} for v in ("", "x" * 256, "a b", "\xff", "\t", "é")] + [{"traceparent": "x" * 5000}, {"content-encoding": "gzip"}, {"expect": "100-continue"}, {"accept": "text/html"}, {"x-" + "y" * 1000: "z"}]


class Answer:
    """As much of requests' Response as the checks of api.py need."""

    class Request:
        pass

    def __init__(self, method, target, r):
        self.request = self.Request()
        self.request.method, self.request.url = method, target
        self.status_code, self.content = r.status, r.read()
        self.headers = {k.lower(): v for k, v in r.getheaders()}

    @property
    def text(self):
        return self.content.decode(errors="replace")

    def json(self):
        return json.loads(self.content)


class Client:
    """One TLS connection; a new one when the server has ended it."""

    def __init__(self, tenant, seconds=40):
        self.tenant, self.seconds, self.sock = tenant, seconds, None
        self.context = ssl.create_default_context(cafile=tenant.centre.ca)

    def close(self):
        if self.sock:
            self.sock.close()
        self.sock = None

    def connect(self):
        at = urlsplit(self.tenant.root)
        raw = socket.create_connection((at.hostname, at.port), self.seconds)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self.context.wrap_socket(raw, server_hostname=at.hostname)

    def ask(self, method, target, body=None, content_type="application/json", headers=None, token=True):
        head = {"host": "centre", **({"authorization": f"Bearer {self.tenant.token}"} if token else {}), **(headers or {})}
        if body is not None:
            head["content-length"] = str(len(body))
            if content_type is not None:
                head["content-type"] = content_type
        text = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n"
        fresh = self.sock is None
        if fresh:
            self.connect()
        try:
            try:
                self.sock.sendall(text.encode("utf-8", "surrogateescape") + (body or b""))
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                if not fresh:
                    raise ConnectionResetError
            r = http.client.HTTPResponse(self.sock, method=method)
            r.begin()
            answer = Answer(method, target[:300], r)
            ends = r.will_close or answer.headers.get("connection") == "close"
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if fresh:
                raise
            return self.ask(method, target, body, content_type, headers, token)  # it had ended the kept connection
        if ends:
            self.close()
        return answer


class Raw(str):
    """A piece of JSON text that stands for itself."""


def text_of(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)


def places(value, at=()):
    """The paths of everything inside a JSON value."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield (*at, k)
            yield from places(v, (*at, k))
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield (*at, i)
            yield from places(v, (*at, i))


def spoiled(value, values=JSON_VALUES):
    """(place, what came there, JSON text): the value with each place in it left out, and replaced by each hostile one."""
    for place in list(places(value)):
        *way, last = place
        for bad in (None, *values):
            copied = copy.deepcopy(value)
            inner = copied
            for step in way:
                inner = inner[step]
            if bad is None:
                del inner[last]
            else:
                inner[last] = Raw(bad)
            yield "/".join(map(str, place)), "nothing" if bad is None else bad[:60], text_of(copied)
