"""Actors of Ray as the objects that this package calls: the only place that knows Ray."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rlcpu
from rlcpu.distributed.remote import LostArgumentError, LostError, StoreFullError
from rlcpu.kernels.machine.threads import usable_cpus

#: Oldest version of Ray that this was tried with.
OLDEST = (2, 40)
#: Seconds in which an actor that died has to be back. Ray takes up to half a minute to notice that
#: a machine is gone, and another process may have to compile.
PATIENCE = 120.0
#: Seconds in which a cluster has to answer.
CONNECT = 20
#: Actors that a cluster of this machine's own has at most for each CPU: more would fill its memory,
#: and wait for each other.
ACTORS_PER_CPU = 8

#: Options of Ray's actors: they are started again, no call is made twice, and machines share them.
_OPTIONS = {
    "max_restarts": -1,
    "max_task_retries": 0,
    "num_cpus": 1,
    "scheduling_strategy": "SPREAD",
}


class ClusterError(ConnectionError):
    """There is no cluster to work on, or it lacks what was asked for."""


def import_ray() -> Any:
    """Return the package, or ImportError with what to do."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install ray") from error
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(f"ray {ray.__version__}: expected {oldest} or newer")
    return ray


def check_address(address: Any) -> None:
    """Raise ValueError for a text that is no address of a cluster, TypeError for anything else."""
    expected = 'expected "HOST:PORT", "ray://HOST:PORT", "auto", "local", or None for this machine'
    if address is None:
        return
    if not isinstance(address, str):
        raise TypeError(f"address={address!r}: {expected}")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address not in ("auto", "local") and not (host and port.isdecimal() and "://" not in host):
        raise ValueError(f"address={address!r}: {expected}")


class RayActor:
    """An object in a process of its own, which Ray starts again when it dies; a `Remote`.

    Args:
        cluster: where to start it.
        kind: its class.
        arguments, options: of its constructor, which is called again after each death.

    Raises:
        StoreFullError: they have no room in the object store.
    """

    def __init__(
        self, cluster: Cluster, kind: type, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> None:
        self._ray = cluster.ray
        self._num_results = getattr(kind, "num_results", {})
        self._methods: dict[str, Any] = {}
        with _full(self._ray):
            self._handle = self._ray.remote(**_OPTIONS)(kind).remote(*arguments, **options)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor; see `Remote.call`."""
        if method not in self._methods:
            count = self._num_results.get(method, 1)
            self._methods[method] = getattr(self._handle, method).options(num_returns=count)
        with _full(self._ray):
            return self._methods[method].remote(*arguments)

    def result(self, call: Any) -> Any:
        """Return a call's result, or raise the method's own exception; see `Remote.result`."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, errors.ObjectLostError):
                raise LostArgumentError(str(cause)) from None
            if isinstance(cause, (errors.ObjectStoreFullError, errors.OutOfDiskError)):
                raise StoreFullError(str(cause)) from None
            raise (cause if isinstance(cause, Exception) else error) from None
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            raise LostError(str(error)) from error

    def is_ready(self, call: Any) -> bool:
        """Tell whether a call is answered; see `Remote.is_ready`."""
        ready, _ = self._ray.wait([call], timeout=0)
        return bool(ready)

    def revive(self) -> Any:
        """Wait until the actor is back after its death; see `Remote.revive`.

        Its handshake, which answers with its version of rlcpu and the state in which it began, is
        asked for again and again, as calls are lost while it starts.

        Returns:
            That state: whatever the actor's class tells, such as a shard's status.

        Raises:
            ClusterError: it is not back in time, its constructor fails, it runs another rlcpu, or
                Ray's own process has died.
        """
        errors, end = self._ray.exceptions, time.monotonic() + PATIENCE
        while True:
            try:
                version, state = self._ray.get(
                    self._handle.handshake.remote(), timeout=max(end - time.monotonic(), 0.1)
                )
                break
            except errors.ActorDiedError as error:
                if self._has_lost_ray():
                    raise ClusterError(
                        "Ray's own process on this machine, the raylet, has died: no actor starts "
                        "until Ray does"
                    ) from error
                raise ClusterError(f"an actor does not start: {error}") from error
            except (errors.RayActorError, errors.WorkerCrashedError):
                time.sleep(0.02)
            except errors.GetTimeoutError:
                pass
            if time.monotonic() > end:
                raise ClusterError(f"an actor is not back after {PATIENCE:.0f} seconds")
        if version != rlcpu.__version__:
            raise ClusterError(f"an actor has rlcpu {version}, expected {rlcpu.__version__}")
        return state

    def _has_lost_ray(self) -> bool:
        """Tell whether the cluster counts this machine as dead."""
        node = self._ray.get_runtime_context().get_node_id()
        return any(each["NodeID"] == node and not each["Alive"] for each in self._ray.nodes())

    def stop(self) -> None:
        """End the process for good."""
        self._ray.kill(self._handle, no_restart=True)


class Cluster:
    """A Ray cluster: one that is there, or one of this machine's own; a context manager.

    Where this process has called `ray.init` already, it is that cluster, whatever the address is,
    and stays when the context ends.

    Args:
        num_actors: CPUs that actors will want, one each.
        address: of the cluster, as `ray.init` takes it; None starts one here, which ends with the
            context.

    Raises:
        TypeError, ValueError: `address` is not an address, or a cluster started here would have
            more than `ACTORS_PER_CPU` actors for each CPU.
        ImportError: Ray is missing or too old.
        ClusterError: the address does not answer, or there are too few CPUs.
    """

    def __init__(self, num_actors: int, address: str | None = None) -> None:
        check_address(address)
        self.ray = import_ray()
        self._owns = not self.ray.is_initialized()
        self._actors: list[RayActor] = []
        self._folder: str | None = None
        if self._owns and address is None:
            _check_room(num_actors)
        with self.closed_on_error():
            if self._owns:
                self._connect(num_actors, address)
            atexit.register(self.close)  # if the user does not, before Ray's own end
            self._wait_for_cpus(num_actors)

    def _connect(self, num_actors: int, address: str | None) -> None:
        """Start a cluster here, or find the one of an address."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is not None:
            with _answering(address):
                self.ray.init(address=address, **quiet)
            return
        cpus = max(num_actors, os.cpu_count() or 1)
        self._folder, self._lock = make_folder()
        quiet |= {"include_dashboard": False, "_temp_dir": self._folder}
        # "local", or Ray takes that of RAY_ADDRESS, or one that somebody runs here.
        self.ray.init("local", num_cpus=cpus, **quiet)

    def _wait_for_cpus(self, count: int) -> None:
        """Wait until `count` CPUs are free, as actors may just have ended; else ClusterError."""
        end = time.monotonic() + CONNECT
        most = self.ray.cluster_resources().get("CPU", 0.0)
        while (free := self.ray.available_resources().get("CPU", 0.0)) < count:
            if most < count or time.monotonic() > end:
                raise ClusterError(
                    f"{count} actors want a CPU each: {free:g} of the cluster's {most:g} are free"
                )
            time.sleep(0.1)

    def start(self, kind: type, *arguments: Any, **options: Any) -> RayActor:
        """Start an actor."""
        actor = RayActor(self, kind, arguments, options)
        self._actors.append(actor)
        return actor

    def put(self, value: Any) -> Any:
        """Return a reference to a copy in the object store; StoreFullError if it has no room."""
        with _full(self.ray):
            return self.ray.put(value)

    def store_bytes(self) -> int:
        """Return the size of the smallest object store of a machine."""
        alive = [each["Resources"] for each in self.ray.nodes() if each["Alive"]]
        return int(min(each.get("object_store_memory", math.inf) for each in alive))

    def wait(self, calls: list[Any], timeout: float) -> list[Any]:
        """Return the calls that are answered, one at least if it comes in time."""
        ready, _ = self.ray.wait(calls, num_returns=len(calls), timeout=0)
        if not ready and timeout > 0.0:
            ready, _ = self.ray.wait(calls, num_returns=1, timeout=timeout)
        return list(ready)

    @contextlib.contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """End everything if an exception leaves the context, and only then."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the actors, and the cluster if it was started here; leave one that was found."""
        atexit.unregister(self.close)
        for actor in self._actors:
            with contextlib.suppress(Exception):
                actor.stop()
        self._actors.clear()
        if self._owns:
            self.ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._lock >= 0:
                os.close(self._lock)
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _check_room(num_actors: int) -> None:
    """Raise ValueError if this machine is too small for so many actors."""
    count = usable_cpus().number
    if num_actors > ACTORS_PER_CPU * count:
        raise ValueError(
            f"num_collectors and num_shards ask for {num_actors} processes: expected at most "
            f"{ACTORS_PER_CPU * count} on this machine, {ACTORS_PER_CPU} for each CPU that may be "
            f"used ({count}); a cluster at address= may have more"
        )


@contextlib.contextmanager
def _full(ray: Any) -> Iterator[None]:
    """Turn Ray's two errors of an object store without room into ours."""
    errors = ray.exceptions
    try:
        yield
    except (errors.ObjectStoreFullError, errors.OutOfDiskError) as error:
        raise StoreFullError(str(error)) from error


#: Bytes of the head of a frame of HTTP/2, which gRPC is made of, and how a client begins: RFC 9113,
#: sections 3.4 and 4.1: a fixed text, and the head of an empty frame of settings. A server answers
#: at once with its own settings, or it does not work.
_FRAME, _SETTINGS = 9, b"\x04"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@contextlib.contextmanager
def _answering(address: str) -> Iterator[None]:
    """Raise ClusterError within seconds where no cluster answers, as Ray would wait for minutes."""
    import socket

    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit() and os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
        try:
            with socket.create_connection((host, int(port)), timeout=CONNECT) as connection:
                connection.sendall(_GREETING)
                head = connection.recv(_FRAME, socket.MSG_WAITALL)
                if head[3:4] != _SETTINGS:  # 3 bytes of length stand before the kind of a frame
                    raise ConnectionError("it speaks another protocol than gRPC")
        except OSError as error:
            raise ClusterError(f"address={address!r} does not answer: {error}") from error
    try:
        yield
    except ConnectionError as error:
        raise ClusterError(f"address={address!r}: no cluster there: {error}") from error


def make_folder() -> tuple[str, int]:
    """Make a folder for Ray's sockets and logs, and remove those of processes that have ended.

    A learner that is ended by a signal leaves its folder behind. Its lock of a file in it has ended
    with its process, which tells that the folder is not in use.

    Returns:
        The path, and the descriptor that holds its lock; -1 where there are no such locks.
    """
    try:
        import fcntl
    except ImportError:
        return tempfile.mkdtemp(prefix="rlcpu-ray-"), -1
    for path in Path(tempfile.gettempdir()).glob("rlcpu-ray-*/rlcpu.lock"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix="rlcpu-ray-")
    lock = os.open(Path(folder, "rlcpu.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock
