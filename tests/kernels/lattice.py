"""Shortest linear relations between the words of one step: a lattice, reduced exactly.

Word i is (a + K[i]) * (b + L[i]) = a * b + a * L[i] + b * K[i] + constant modulo 2**32. A vector c
of whole numbers with sum(c) = sum(c * K) = sum(c * L) = 0 modulo 2**32 makes sum(c * words) a
constant, so that the numbers lie in planes 1 / |c| apart. Those c are a lattice, of whose shortest
vector Knuth's spectral test (The Art of Computer Programming, 3.3.4) asks the length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

Vector = list[int]
MODULUS_BITS = 32


def shortest_relation(addends: Sequence[tuple[int, int]]) -> float:
    """A lower bound of the length of the shortest relation between words with addends (K, L)."""
    count = len(addends)
    basis = [[int(row == column) for column in range(count)] for row in range(count)]
    conditions = [[1] * count, *(list(column) for column in zip(*addends, strict=True))]
    for condition in conditions:
        basis = reduce(restrict(basis, condition))
    return math.sqrt(min(dot(v, v) for v in orthogonalise(basis)[0]))


def restrict(basis: list[Vector], condition: Vector) -> list[Vector]:
    """Basis of the vectors of a lattice whose product with `condition` is 0 modulo 2**32."""
    products = [dot(vector, condition) % 2**MODULUS_BITS for vector in basis]
    zeros = [(p & -p).bit_length() - 1 if p else MODULUS_BITS for p in products]
    pivot = min(range(len(basis)), key=lambda i: zeros[i])
    modulus = 2 ** (MODULUS_BITS - zeros[pivot])
    inverse = pow(products[pivot] >> zeros[pivot], -1, modulus) if modulus > 1 else 0
    restricted = []
    for i, vector in enumerate(basis):
        factor = (products[i] >> zeros[pivot]) * inverse % modulus
        rest = [x - factor * y for x, y in zip(vector, basis[pivot], strict=True)]
        restricted.append([modulus * y for y in vector] if i == pivot else rest)
    return restricted


def reduce(basis: list[Vector]) -> list[Vector]:
    """Lenstra-Lenstra-Lovász reduction, in exact arithmetic."""
    basis, k = [list(vector) for vector in basis], 1
    orthogonal, factors = orthogonalise(basis)
    while k < len(basis):
        for j in reversed(range(k)):
            nearest = round(factors[k][j])
            if nearest:
                basis[k] = [x - nearest * y for x, y in zip(basis[k], basis[j], strict=True)]
                orthogonal, factors = orthogonalise(basis)
        here, before = (dot(orthogonal[i], orthogonal[i]) for i in (k, k - 1))
        if here >= (Fraction(99, 100) - factors[k][k - 1] ** 2) * before:
            k += 1
        else:
            basis[k - 1 : k + 1] = basis[k], basis[k - 1]
            orthogonal, factors = orthogonalise(basis)
            k = max(k - 1, 1)
    return basis


def orthogonalise(basis: list[Vector]) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """Gram-Schmidt vectors and factors; no vector of the lattice is shorter than the shortest."""
    orthogonal: list[list[Fraction]] = []
    factors: list[list[Fraction]] = []
    for vector in basis:
        rest, row = [Fraction(x) for x in vector], []
        for other in orthogonal:
            row.append(Fraction(dot(vector, other)) / dot(other, other))
            rest = [x - row[-1] * y for x, y in zip(rest, other, strict=True)]
        orthogonal.append(rest)
        factors.append(row)
    return orthogonal, factors


def dot(left: Sequence, right: Sequence) -> Fraction | int:
    return sum(x * y for x, y in zip(left, right, strict=True))
