"""How tensors travel between a worker and a server: gRPC, Arrow Flight, TCP and Unix sockets, shared memory.

    python benchmarks/ps/transports.py [--seconds 3]

A request of 64 KiB (8,192 ids) is answered with 512 KiB (their rows of 16 floats), and 4 MiB with 4 MiB (a dense
gradient and the new values). The server is a process of its own, and all of them run side by side while the cases
alternate, so that a busy machine slows all alike. Both sides touch every byte once. The last column is the time of a
case as a multiple of two copies of its bytes in memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.shared_memory
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SIZES = {"rows": (64 << 10, 512 << 10), "dense": (4 << 20, 4 << 20)}
METHOD = "/bench.Bench/exchange"
Exchange = Callable[[np.ndarray, np.ndarray], None]


# -- sockets -------------------------------------------------------------------------------------------------------


def receive_into(connection: socket.socket, target: memoryview) -> None:
    """Fill `target`."""
    while len(target):
        count = connection.recv_into(target)
        if not count:
            raise EOFError
        target = target[count:]


def serve_sockets(listener: socket.socket) -> None:
    """Answer every request with as many bytes as it asks for."""
    connection, _ = listener.accept()
    if connection.family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    header, buffers = bytearray(8), {size: np.ones(size, np.uint8) for pair in SIZES.values() for size in pair}
    inputs = {size: np.empty(size, np.uint8) for size in buffers}
    try:
        while True:
            receive_into(connection, memoryview(header))
            size, answer = struct.unpack("<II", header)
            receive_into(connection, memoryview(inputs[size]))
            connection.sendall(buffers[answer].data)
    except EOFError:
        return


def open_socket(address: Any, family: int) -> Exchange:
    """A client of `serve_sockets`."""
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.connect(address)
    if family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(request: np.ndarray, answer: np.ndarray) -> None:
        left = [memoryview(struct.pack("<II", request.nbytes, answer.nbytes)), request.data]
        sent = connection.sendmsg(left)
        connection.sendall(request.data[max(0, sent - 8) :])
        receive_into(connection, answer.data)

    return exchange


# -- shared memory: the socket carries eight bytes, the tensors lie in a segment both have mapped --------------------


def serve_shared(listener: socket.socket, name: str) -> None:
    """Read the request from the segment and write the answer into it."""
    connection, _ = listener.accept()
    segment = multiprocessing.shared_memory.SharedMemory(name)
    memory = np.frombuffer(segment.buf, np.uint8)
    header = bytearray(8)
    inputs = {size: np.empty(size, np.uint8) for pair in SIZES.values() for size in pair}
    outputs = {size: np.ones(size, np.uint8) for size in inputs}
    try:
        while True:
            receive_into(connection, memoryview(header))
            size, answer = struct.unpack("<II", header)
            inputs[size][:] = memory[:size]
            memory[:answer] = outputs[answer]
            connection.sendall(b"\1")
    except EOFError:
        os._exit(0)


def open_shared(address: str, name: str) -> Exchange:
    """A client of `serve_shared`."""
    segment = multiprocessing.shared_memory.SharedMemory(name)
    memory = np.frombuffer(segment.buf, np.uint8)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)

    def exchange(request: np.ndarray, answer: np.ndarray) -> None:
        memory[: request.nbytes] = request
        connection.sendall(struct.pack("<II", request.nbytes, answer.nbytes))
        connection.recv(1)
        answer[:] = memory[: answer.nbytes]

    exchange.segment = segment  # type: ignore[attr-defined]  # lives as long as its view
    return exchange


# -- gRPC and Flight ------------------------------------------------------------------------------------------------

GRPC_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def serve_grpc(port: int) -> None:
    """One unary method that takes and gives bytes."""
    import grpc

    outputs = {size: np.ones(size, np.uint8) for pair in SIZES.values() for size in pair}

    def answer(request: bytes, _: Any) -> bytes:
        np.frombuffer(request, np.uint8, offset=8).copy()
        return outputs[struct.unpack("<Q", request[:8])[0]].tobytes()

    server = grpc.server(ThreadPoolExecutor(1), options=GRPC_OPTIONS)
    handlers = {"exchange": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bench", handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def open_grpc(port: int) -> Exchange:
    """A client of `serve_grpc`."""
    import grpc

    call = grpc.insecure_channel(f"127.0.0.1:{port}", options=GRPC_OPTIONS).unary_unary(METHOD)

    def exchange(request: np.ndarray, answer: np.ndarray) -> None:
        reply = call(struct.pack("<Q", answer.nbytes) + request.tobytes(), wait_for_ready=True)
        answer[:] = np.frombuffer(reply, np.uint8)

    return exchange


def serve_flight(port: int) -> None:
    """`do_exchange` with batches of one binary column."""
    import pyarrow as pa
    from pyarrow import flight

    outputs = {size: np.ones(size, np.uint8) for pair in SIZES.values() for size in pair}

    class Server(flight.FlightServerBase):
        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            schema = pa.schema([("bytes", pa.uint8())])
            writer.begin(schema)
            for chunk in reader:
                chunk.data.column(0).to_numpy().copy()
                size = int(bytes(chunk.app_metadata))
                writer.write_batch(pa.record_batch([pa.array(outputs[size])], schema=schema))

    Server(f"grpc://127.0.0.1:{port}").serve()


def open_flight(port: int) -> Exchange:
    """A client of `serve_flight`; one stream for all requests."""
    import pyarrow as pa
    from pyarrow import flight

    client = flight.connect(f"grpc://127.0.0.1:{port}")
    client.wait_for_available(30)
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""))
    schema = pa.schema([("bytes", pa.uint8())])
    writer.begin(schema)

    def exchange(request: np.ndarray, answer: np.ndarray) -> None:
        batch = pa.record_batch([pa.array(request)], schema=schema)
        writer.write_with_metadata(batch, str(answer.nbytes).encode())
        answer[:] = reader.read_chunk().data.column(0).to_numpy()

    return exchange


# -- the comparison ---------------------------------------------------------------------------------------------------


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def open_all(folder: Path, started: list[Any]) -> dict[str, Exchange]:
    """A client of every transport, with its server in a process of its own."""
    context = multiprocessing.get_context("fork")
    tcp = socket.create_server(("127.0.0.1", 0))
    unix, shared = (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2))
    for listener, name in ((unix, "unix"), (shared, "shared")):
        listener.bind(str(folder / name))
        listener.listen()
    segment = multiprocessing.shared_memory.SharedMemory(create=True, size=8 << 20)
    grpc_port, flight_port = free_port(), free_port()
    targets = [(serve_sockets, (tcp,)), (serve_sockets, (unix,)), (serve_shared, (shared, segment.name))]
    targets += [(serve_grpc, (grpc_port,)), (serve_flight, (flight_port,))]
    for target, arguments in targets:
        process = context.Process(target=target, args=arguments, daemon=True)
        process.start()
        started.append(process)
    started.append(segment)
    return {
        "TCP socket": open_socket(tcp.getsockname(), socket.AF_INET),
        "Unix socket": open_socket(str(folder / "unix"), socket.AF_UNIX),
        "shared memory": open_shared(str(folder / "shared"), segment.name),
        "gRPC": open_grpc(grpc_port),
        "Arrow Flight": open_flight(flight_port),
    }


def copies(request: np.ndarray, answer: np.ndarray) -> None:
    """Two copies of the bytes of a case."""
    for array in (request, answer):
        array.copy()[:] = array


def measure(exchanges: dict[str, Exchange], *, seconds: float) -> None:
    """Alternate the transports, and print the median of each."""
    for case, (sent, received) in SIZES.items():
        request, answer = np.ones(sent, np.uint8), np.zeros(received, np.uint8)
        times: dict[str, list[float]] = {name: [] for name in exchanges}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, exchange in exchanges.items():
                for _ in range(3):
                    started = time.perf_counter()
                    exchange(request, answer)
                    times[name].append(time.perf_counter() - started)
        base = median(times["copies"])
        for name, took in times.items():
            print(f"{case:6} {name:14} {median(took) * 1e3:8.3f} ms  {median(took) / base:6.1f} x")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    started: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            measure({"copies": copies, **open_all(Path(folder), started)}, seconds=seconds)
        finally:
            for one in started:
                one.unlink() if hasattr(one, "unlink") else one.kill()
    sys.stdout.flush()
    os._exit(0)  # threads of gRPC and Flight


if __name__ == "__main__":
    main()
