#!/usr/bin/env python3
"""Stands in for the collector of the stack when its image is not available. It receives OTLP over TLS
with the certificate that the stack made, and serves metrics under the names of `collector.yaml`.

It reads only what the boards need: numbers and histograms with cumulative values. It ignores its
arguments, which are those of the real collector.
"""

import gzip
import http.server
import ssl
import struct
import threading
import time

# As `metric_expiration` in collector.yaml.
EXPIRES = 45
# Removed by its processor `resource`.
OMITTED = ("telemetry.sdk.",)
GAUGE, SUM, HISTOGRAM = 5, 7, 9
# The port of the real collector's own metrics.
ITSELF = 8888


def fields(data):
    """Number and content of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            length = {1: 8, 5: 4}[kind]
            value, at = data[at : at + length], at + length
        yield number, value


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def every(data, number):
    return [value for found, value in fields(data) if found == number]


def text(data, number):
    return b"".join(every(data, number)).decode()


def attributes(pairs):
    labels = {}
    for pair in pairs:
        for kind, value in fields(b"".join(every(pair, 2))):
            plain = {1: lambda v: v.decode(), 2: lambda v: str(bool(v)).lower(), 3: str}
            labels[text(pair, 1)] = plain.get(kind, lambda _: "")(value)
    return labels


def written(labels):
    def escaped(value):
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return ",".join(f'{key.replace(".", "_")}="{escaped(labels[key])}"' for key in sorted(labels))


def named(name, unit, kind, counts):
    name = name.replace(".", "_")
    if unit == "s":
        name += "_seconds"
    elif unit == "1" and kind == GAUGE:
        name += "_ratio"
    return name + ("_total" if counts else "")


def number(point):
    for found, value in fields(point):
        if found == 4:
            return struct.unpack("<d", value)[0]
        if found == 6:
            return struct.unpack("<q", value)[0]
    return 0


def packed(point, found, kind):
    data = b"".join(every(point, found))
    return [value for (value,) in struct.iter_unpack(kind, data)]


def lines(name, labels, point, kind):
    if kind != HISTOGRAM:
        return [f"{name}{{{labels}}} {number(point)}"]
    counts, bounds = packed(point, 6, "<Q"), packed(point, 7, "<d")
    made, below = [], 0
    for count, bound in zip(counts, [*bounds, "+Inf"]):
        below += count
        made.append(f'{name}_bucket{{{labels},le="{bound}"}} {below}')
    total = struct.unpack("<d", b"".join(every(point, 5)) or bytes(8))[0]
    return [*made, f"{name}_sum{{{labels}}} {total}", f"{name}_count{{{labels}}} {below}"]


class Held:
    """The newest samples of each process."""

    def __init__(self):
        self.turn, self.series = threading.Lock(), {}

    def take(self, request):
        for told in every(request, 1):
            whose = attributes(every(b"".join(every(told, 1)), 1))
            whose = {key: it for key, it in whose.items() if not key.startswith(OMITTED)}
            whose["job"] = whose.get("service.name", "")
            whose["instance"] = whose.get("service.instance.id", "")
            for scope in every(told, 2):
                for metric in every(scope, 2):
                    self.metric(metric, whose)

    def metric(self, metric, whose):
        for kind, data in fields(metric):
            if kind not in (GAUGE, SUM, HISTOGRAM):
                continue
            name = named(text(metric, 1), text(metric, 3), kind, kind == SUM and any(every(data, 3)))
            for point in every(data, 1):
                labels = whose | attributes(every(point, 9 if kind == HISTOGRAM else 7))
                labels = written(labels)
                with self.turn:
                    told = (time.monotonic(), kind, lines(name, labels, point, kind))
                    self.series[name, labels] = told

    def page(self):
        since, pages = time.monotonic() - EXPIRES, {}
        with self.turn:
            for (name, _), (at, kind, told) in self.series.items():
                if at >= since:
                    pages.setdefault((name, kind), []).extend(told)
        kinds = {GAUGE: "gauge", SUM: "counter", HISTOGRAM: "histogram"}
        heads = ([f"# TYPE {name} {kinds[kind]}", *told] for (name, kind), told in pages.items())
        return "\n".join(line for page in heads for line in [*page]) + "\n"


HELD = Held()


class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        # A sender waits three seconds at most, and reading can take longer on a busy host.
        self.answer(200, "application/x-protobuf", b"")
        if self.path == "/v1/metrics":
            HELD.take(body)

    def do_GET(self):
        # It has no metrics of its own.
        page = "" if self.server.server_port == ITSELF else HELD.page()
        self.answer(200, "text/plain; version=0.0.4", page.encode())


class Server(http.server.ThreadingHTTPServer):
    # All processes of a stack connect at once, with traces, metrics and logs.
    request_queue_size = 128


def serve(port, context=None):
    server = Server(("", port), Door)
    if context:
        # In the connection's own thread: one silent client would otherwise block all others.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever).start()


def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain("/tls/otel-collector.pem", "/tls/otel-collector.key")
    serve(4318, context)
    serve(8889)
    serve(ITSELF)


if __name__ == "__main__":
    main()
