"""Shuts a forked process in: namespaces, limits, no privileges, few system calls. Linux only.

The process is already inside bubblewrap's sandbox, which a prepared interpreter shares with all
submissions that it is forked for. What is done here separates them from that interpreter and from
one another: a submission sees its own processes, an empty ``/proc``, and a folder of its own.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PRIVATE = "/sandbox"
"""Where a submission may write; not /tmp, where the Python environment itself may lie."""

UIDS = 1000
"""Users of one sandbox: as many submissions later the first one, long gone, has its turn again."""

# Values of the kernel's headers.
_NEW_NAMESPACES = {
    "mount": 0x00020000, "names": 0x04000000, "ipc": 0x08000000, "pid": 0x20000000,
    "network": 0x40000000,
}  # fmt: skip
_NEW_USER = 0x10000000
_NOSUID_NODEV = 2 | 4
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Args:
        memory: bytes of a process, what it shares with others included; twice that much for all
            processes together.
        cpu_seconds: of a process.
        seconds: of wall time, for one cell or one call.
        total_seconds: of wall time, for all that a notebook shows, and again for all its tests.
        processes: threads included.
        file_bytes: of one file; the private folder holds four times as much.
    """

    memory: int = 3 * 2**30
    cpu_seconds: int = 600
    seconds: int = 30
    total_seconds: int = 300
    processes: int = 64
    file_bytes: int = 64 * 2**20


def shut_in(limits: Limits, uid: int | None) -> None:
    """Never let this process, and those that it starts, do more than compute. There is no way back.

    Forks twice on the way: the caller goes on in a process that sees only itself and its parent,
    which waits for it and takes everything along when it ends.

    Args:
        uid: the user to become, if the process is root's; its own otherwise.

    Raises:
        OSError: the system does not allow it.
    """
    mapped = _mapped()
    _separate(own_user=uid is None)
    _wait_for_child(forget_everything=False)
    _mount_private_folders(limits)
    confine(limits, uid, mapped)
    _wait_for_child(forget_everything=True)


def confine(limits: Limits, uid: int | None, mapped: int | None = None) -> None:
    """The part of :func:`shut_in` that needs no namespaces: no privileges, limits, few calls.

    Args:
        mapped: bytes of address space in use already, if that cannot be read here any more.
    """
    mapped = _mapped() if mapped is None else mapped
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _drop_capabilities()
    _set_limits(limits, mapped)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _filter_system_calls()


def _mapped() -> int:
    """Bytes of this process's address space: the interpreter, its libraries, and all it holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _set_limits(limits: Limits, mapped: int) -> None:
    """The limits that the kernel keeps for each process; the lower one stays."""
    import resource  # not on Windows, where the rest of this module can at least be imported

    wanted = {
        resource.RLIMIT_DATA: limits.memory,
        resource.RLIMIT_AS: mapped + limits.memory,  # counts what RLIMIT_DATA does not: shared
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: 128,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        # The soft limit of CPU time comes first, with a signal that says what it was.
        resource.setrlimit(kind, (value, value + 5 if kind == resource.RLIMIT_CPU else value))


def _separate(own_user: bool) -> None:
    user, group = os.getuid(), os.getgid()
    flags = sum(_NEW_NAMESPACES.values())
    _call("unshare", flags | (_NEW_USER if own_user else 0))
    if own_user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def shell_code(code: int) -> int:
    """How shells count an end: the exit code, or 128 and the number of the signal."""
    return code if code >= 0 else 128 - code


def _wait_for_child(forget_everything: bool) -> None:
    """Go on in a child; the parent only waits for it, and ends with it."""
    child = os.fork()
    if child == 0:
        return
    if forget_everything:
        os.closerange(0, 256)
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(shell_code(os.waitstatus_to_exitcode(status)))


def _mount_private_folders(limits: Limits) -> None:
    _mount_empty(PRIVATE, f"size={4 * limits.file_bytes},nr_inodes=10000,mode=1777")
    _mount_empty("/dev/shm", f"size={limits.file_bytes},nr_inodes=1000,mode=1777")
    _mount_empty("/proc", "size=4k,nr_inodes=1,mode=555")


def _mount_empty(path: str, options: str) -> None:
    _call("mount", b"tmpfs", path.encode(), b"tmpfs", _NOSUID_NODEV, options.encode())


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _call("capset", header, struct.pack("=6I", *[0] * 6))


def _call(name: str, *arguments: int | bytes) -> None:
    function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    plain = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    if function(*plain) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


# System calls that no exercise needs and that reach far into the kernel, or that take memory which
# no limit counts. Their numbers on x86-64 and on aarch64.
_REFUSED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "statmount": (457, 457), "listmount": (458, 458),
    "unshare": (272, 97), "setns": (308, 268),
    "setsid": (112, 157),  # a session of one's own has its own share of the processors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "open_by_handle_at": (304, 265),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_SOCKET_FAMILIES = (1, 2, 10)  # of this machine, and IP, for which the network is empty

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _JUMP_IF_ABOVE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def _filter_system_calls() -> None:
    """A seccomp filter, a list of the calls that are refused; others pass."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(_ENOSYS, f"no list of system calls for the processor {machine}")
    program = b"".join(_program(*_MACHINES[machine]))
    code = ctypes.create_string_buffer(program)
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0)


def _program(column: int, architecture: int) -> Iterator[bytes]:
    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    yield step(_LOAD, _ARCHITECTURE)
    yield step(_JUMP_IF_EQUAL, architecture, if_true=1)
    yield step(_RETURN, _KILL)
    yield step(_LOAD, _NUMBER)
    yield step(_JUMP_IF_ABOVE, 0x40000000, if_false=1)  # a second numbering, of x86-64 only
    yield step(_RETURN, _REFUSE | _ENOSYS)
    for numbers in _REFUSED.values():
        yield step(_JUMP_IF_EQUAL, numbers[column], if_false=1)
        yield step(_RETURN, _REFUSE | _EPERM)
    # The flags of clone3 cannot be looked at; without it, clone is used.
    yield step(_JUMP_IF_EQUAL, _CLONE3[column], if_false=1)
    yield step(_RETURN, _REFUSE | _ENOSYS)
    yield step(_JUMP_IF_EQUAL, _CLONE[column], if_false=3)
    yield step(_LOAD, _FIRST_ARGUMENT)
    yield step(_JUMP_IF_SET, _NEW_USER | sum(_NEW_NAMESPACES.values()), if_false=7)
    yield step(_RETURN, _REFUSE | _EPERM)
    yield step(_JUMP_IF_EQUAL, _SOCKET[column], if_false=5)
    yield step(_LOAD, _FIRST_ARGUMENT)
    for number, family in enumerate(_SOCKET_FAMILIES):
        yield step(_JUMP_IF_EQUAL, family, if_true=3 - number)
    yield step(_RETURN, _REFUSE | _EAFNOSUPPORT)
    yield step(_RETURN, _ALLOW)
