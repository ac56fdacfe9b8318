"""Boot sectors for x86: programs of a few bytes that print on the serial port, end the emulator, or wait.

16-bit real mode at 0x7c00, written as bytes with the assembly next to them.
"""

from __future__ import annotations

SECTOR_BYTES = 512
SIGNATURE = b"\x55\xaa"
EXIT_DEVICE = ("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04")
"""The emulator ends with 2n+1 when the guest writes n to this port."""
LOAD_ADDRESS = 0x7C00


def sector(code: bytes) -> bytes:
    """A disk of one sector that runs the code."""
    assert len(code) <= SECTOR_BYTES - len(SIGNATURE), len(code)
    return code.ljust(SECTOR_BYTES - len(SIGNATURE), b"\0") + SIGNATURE


def ends(code: int) -> bytes:
    """mov al, code; out 0xf4, al; then wait."""
    return bytes((0xB0, code, 0xE6, 0xF4)) + waits()


def waits() -> bytes:
    """cli; hlt; jmp to the hlt."""
    return b"\xfa\xf4\xeb\xfd"


def prints(line: bytes, *, times: int = 1, then: bytes | None = None) -> bytes:
    """Print a line a number of times on the first serial port, then end with code 0.

    Interrupts are off: the BIOS writes the rest of its own output from them, amid the line.
    """
    tail = ends(0) if then is None else then
    head = bytes.fromhex("fafc31c08ed8b9") + times.to_bytes(
        2, "little"
    )  # cli; cld; xor ax, ax; mov ds, ax; mov cx, times
    loop = bytes.fromhex(
        "be0000"  # again: mov si, line
        "ac"  # next: lodsb
        "84c0"  # test al, al
        "7411"  # jz done
        "88c4"  # mov ah, al
        "bafd03"  # mov dx, 0x3fd
        "ec"  # ready: in al, dx
        "a820"  # test al, 0x20
        "74fb"  # jz ready
        "b2f8"  # mov dl, 0xf8
        "88e0"  # mov al, ah
        "ee"  # out dx, al
        "ebea"  # jmp next
        "e2e5"  # done: loop again
    )
    code = bytearray(head + loop + tail)
    code[len(head) + 1 : len(head) + 3] = (LOAD_ADDRESS + len(code)).to_bytes(2, "little")
    return bytes(code) + line + b"\0"


def ends_by_power_button() -> bytes:
    """Wait for the power button, print "bye", and switch the machine off.

    SeaBIOS puts the ACPI registers of the machine `pc` at 0x600 (status), 0x602 (enable) and 0x604 (control).
    """
    arm = bytes.fromhex("ba0206 b80001 ef")  # mov dx, 0x602; mov ax, 0x100; out dx, ax
    poll = bytes.fromhex("ba0006 ed f6c401 74fa")  # mov dx, 0x600; again: in ax, dx; test ah, 1; jz again
    letters = b"".join(bytes((0xB0, letter, 0xEE)) for letter in b"bye")  # mov al, letter; out dx, al
    off = bytes.fromhex("ba0406 b80020 ef")  # mov dx, 0x604; mov ax, 0x2000; out dx, ax
    return arm + poll + bytes.fromhex("baf803") + letters + off + waits()
