"""Ids and tie-breaks derived from a seed: reproducible in any process.

A seed names one attempt. Ids are blake2b(seed, kind, counter) in the form of a UUID; `mix` scrambles the hash of a
node's id with the seed, so that equal nodes take turns over attempts but never within a rerun of the same one.
"""

from __future__ import annotations

import hashlib
from struct import Struct

import numpy as np

from yurt.state.arrays import IntArray, TieArray

_MASK = (1 << 64) - 1
UUID_PARTS = Struct("8s4s4s4s12s")
UUID_LENGTH = 36
UUID_DIGITS = np.array([at for at in range(UUID_LENGTH) if at not in (8, 13, 18, 23)])
FEW = 32
"""Up to this number, ids are generated faster one by one."""


class SeededIds:
    """The ids of one attempt."""

    __slots__ = ("_base", "_count", "_wide")

    def __init__(self, seed: int, *scope: str) -> None:
        head = (seed & ((1 << 128) - 1)).to_bytes(16, "big")
        base = head + b"\0".join(part.encode() for part in scope)
        self._base = hashlib.blake2b(base, digest_size=16)
        self._wide = hashlib.blake2b(base, digest_size=64)
        self._count = 0

    def next(self, kind: str) -> str:
        """A new UUID."""
        self._count += 1
        fresh = self._base.copy()
        fresh.update(f"{kind}{self._count}".encode())
        text = fresh.hexdigest()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def next_many(self, kind: str, number: int) -> list[str]:
        """New UUIDs, four from each hash."""
        texts: list[str] = []
        for _ in range(-(-number // 4)):
            self._count += 1
            block = self._wide.copy()
            block.update(f"{kind}{self._count}".encode())
            texts.append(block.hexdigest())
        digits = "".join(texts).encode()
        made = _formed(digits, number)
        assert len(made) == number and (not made or len(made[-1]) == UUID_LENGTH), (len(made), number)
        return made


def _formed(digits: bytes, number: int) -> list[str]:
    """UUIDs formed from hexadecimal digits."""
    if number <= FEW:
        return [b"-".join(parts).decode() for parts in UUID_PARTS.iter_unpack(digits)][:number]
    text = np.full((number, UUID_LENGTH), ord("-"), np.uint8)
    text[:, UUID_DIGITS] = np.frombuffer(digits, np.uint8).reshape(-1, len(UUID_DIGITS))[:number]
    whole = text.tobytes().decode()
    return [whole[at : at + UUID_LENGTH] for at in range(0, len(whole), UUID_LENGTH)]


def number_of(seed: int, *scope: str) -> int:
    """A 64-bit number from a seed and a scope."""
    head = (seed & ((1 << 128) - 1)).to_bytes(16, "big")
    return int.from_bytes(
        hashlib.blake2b(head + b"\0".join(part.encode() for part in scope), digest_size=8).digest(), "big"
    )


def mix(ties: TieArray, salt: int) -> TieArray:
    """Hashes scrambled by a salt (splitmix64's finaliser)."""
    value = ties ^ np.uint64(salt & _MASK)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: TieArray = value ^ (value >> np.uint64(31))
    return mixed


class Ties:
    """Tie-breakers between equal rows in one attempt: salted hashes of their nodes' ids, computed on demand."""

    __slots__ = ("_base", "_salt")

    def __init__(self, base: TieArray, salt: int) -> None:
        self._base = base
        self._salt = salt

    def __getitem__(self, rows: IntArray) -> TieArray:
        return mix(self._base[rows], self._salt)

    def of(self, row: int) -> int:
        """The tie-breaker of one row."""
        return _finalised(int(self._base[row]) ^ (self._salt & _MASK))


def step(value: int) -> int:
    """The next number of a 64-bit sequence."""
    return _finalised((value + 0x9E3779B97F4A7C15) & _MASK)


def _finalised(value: int) -> int:
    """`mix` for one number."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
