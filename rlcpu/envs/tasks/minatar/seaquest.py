"""MinAtar/Seaquest-v1: a submarine shoots fish and submarines, rescues divers, and needs air.

Each enemy shot gives a reward of 1. The submarine carries six divers; who comes up with six gets up
to 10 for the oxygen left, who comes up with none has lost, as has who is hit or without oxygen.
Each time it comes up, enemies become more frequent and faster.
`rng.integers(k, n)` is random number k of a step or reset, from 0 to n - 1.
Source: see `rlcpu.envs.tasks.minatar.common`.

Several enemies may be in one cell, though never two of a kind with the same number of steps to wait
until they move: there is a board for each number. Those in one cell came in as many steps apart as
their waits differ, so that the steps until they shoot, less the steps until they move, are the same
number modulo 11: the phase of the cell.
"""

from typing import NamedTuple

from rlcpu.envs.tasks.minatar.common import (
    ALL,
    COLUMN,
    NONE,
    ROW,
    Params,
    behind,
    cell,
    game,
    moved,
    sticky,
)
from rlcpu.kernels.machine.boards import Board
from rlcpu.kernels.machine.random import Rng

MAX_OXYGEN = 200
COOL_DOWN = 5  # steps between two shots of the player
ENEMY_COOL_DOWN = 10
DIVER_INTERVAL, DIVER_PAUSE = 30, 5  # steps between two divers, steps that a diver waits
LAST_RAMP = 19  # LAST_RAMP + 1 - ramp steps are between two enemies
CREW = 6

#: Boards of what moves to the left, and of what moves to the right.
Pair = tuple[Board, Board]
#: Bits 1, 2, 4 and 8 of a number for each cell: the phases of the cells of submarines.
Four = tuple[Board, Board, Board, Board]
#: Enemies by the steps that they still wait until they move: 0 to 5.
Six = tuple[Board, Board, Board, Board, Board, Board]


class State(NamedTuple):
    """Boards are sets of cells: bit 10 * y + x is column x, row y from the top. Timers run to 0."""

    x: int  # front of the player's submarine, 0 to 9
    y: int  # 0, the surface, to 8
    faces_right: bool
    bullets: tuple[Board, Board]  # to the left, to the right
    enemy_bullets: tuple[Board, Board]
    divers: tuple[Board, Board]
    fish: tuple[Board, Board, Board, Board, Board, Board]  # by the steps until they move
    subs: tuple[Board, Board, Board, Board, Board, Board]
    phase: tuple[Board, Board, Board, Board]  # of the cells of subs: bits 1, 2, 4 and 8
    right: Board  # rows in which fish and subs move to the right
    oxygen: int
    rescued: int  # divers on board; -1 after the rescue of six, as in the original
    surfaced: bool  # was at the surface after the last step
    spawn_timer: int
    diver_timer: int
    shot_timer: int
    ramp: int  # 0 to 19: how often the game has become harder
    last_action: int


def reset(rng: Rng, params: Params) -> State:
    """Return a state with the player at the surface of an empty sea."""
    none, none_by_wait = (NONE, NONE), (NONE, NONE, NONE, NONE, NONE, NONE)
    return State(
        x=5, y=0, faces_right=False, bullets=none, enemy_bullets=none, divers=none,
        fish=none_by_wait, subs=none_by_wait, phase=(NONE, NONE, NONE, NONE), right=NONE,
        oxygen=MAX_OXYGEN, rescued=0, surfaced=True, spawn_timer=20,
        diver_timer=DIVER_INTERVAL, shot_timer=0, ramp=0, last_action=0,
    )  # fmt: skip


def step(s: State, action: int, params: Params, rng: Rng) -> tuple[State, float, bool]:
    """Move the submarine: 0 stays; 1, 2, 3 and 4 move to the left, up, right and down; 5 shoots.

    Bullets move, too; all others every few steps. Random numbers 0 to 5 are whether the action
    sticks; direction, kind and row of an enemy; direction and row of a diver.
    """
    action = sticky(action, s.last_action, params, rng)
    pause = max(5 - s.ramp // 2, 2)  # steps that enemies wait after a move
    fish, subs, phase, right = send_enemy(s, pause, rng)
    diver_enters, shoots = s.diver_timer <= 0, action == 5 and s.shot_timer <= 0
    divers = send_diver(s.divers, rng) if diver_enters else s.divers
    bullets = fly(s, cell(s.y, s.x) if shoots else NONE)
    x = min(max(s.x + (action == 3) - (action == 1), 0), 9)
    y = min(max(s.y + (action == 4) - (action == 2), 0), 8)
    faces_right = action == 3 or (s.faces_right and action != 1)
    player = cell(y, x)

    shots = bullets[0] | bullets[1]
    before = shots.count()
    fish, shots = shoot(fish, shots)
    subs, shots = shoot(subs, shots)
    divers, rescued = rescue(divers, s.rescued, player, x)
    # Divers come 30 steps apart and move in every sixth step from the fifth on: all in the same.
    if s.diver_timer % (DIVER_PAUSE + 1) == 1:
        divers = (moved(divers[0], NONE), moved(divers[1], ALL))
    divers, rescued = rescue(divers, rescued, player, x)

    enemy_shots, phase = cells_of_shots(subs, phase, pause, right)
    subs, shots, sub_hits = advance(subs, shots, player, pause, right)
    fish, shots, fish_hits = advance(fish, shots, player, pause, right)
    enemy_bullets = (
        s.enemy_bullets[0] | (enemy_shots & ~right),
        s.enemy_bullets[1] | (enemy_shots & right),
    )
    hit = bool((enemy_bullets[0] | enemy_bullets[1]) & player)
    enemy_bullets = (moved(enemy_bullets[0], NONE), moved(enemy_bullets[1], ALL))
    hit = hit or bool((enemy_bullets[0] | enemy_bullets[1]) & player)
    bullets, num_hits = (bullets[0] & shots, bullets[1] & shots), before - shots.count()
    dive = breathe(s, y, rescued, params)
    lost = hit or sub_hits or fish_hits or dive.lost

    spawn_timer = max((LAST_RAMP + 1 - s.ramp if s.spawn_timer <= 0 else s.spawn_timer) - 1, 0)
    diver_timer = max((DIVER_INTERVAL if diver_enters else s.diver_timer) - 1, 0)
    shot_timer = max((COOL_DOWN if shoots else s.shot_timer) - 1, 0)
    after = State(
        x, y, faces_right, bullets, enemy_bullets, divers, fish, subs, phase, right, dive.oxygen,
        dive.rescued, dive.surfaced, spawn_timer, diver_timer, shot_timer, dive.ramp, action,
    )  # fmt: skip
    return after, float(num_hits + dive.reward), lost


class Dive(NamedTuple):
    """Fields of a new state that hang on oxygen and divers, and what they are worth."""

    oxygen: int
    rescued: int
    surfaced: bool
    ramp: int
    reward: int
    lost: bool


def breathe(s: State, y: int, rescued: int, params: Params) -> Dive:
    """Use up oxygen below the surface, and fill it up where the submarine, in row y, comes up.

    It has `rescued` divers on board, of which it leaves one there, or all if there are six.
    """
    comes_up = y == 0 and not s.surfaced
    lost = s.oxygen <= 0 or (comes_up and rescued == 0)
    surfaced = y == 0 and (s.surfaced or rescued != 0)
    oxygen, ramp, reward = s.oxygen - 1 if y > 0 else s.oxygen, s.ramp, 0
    if comes_up and rescued != 0:
        is_full = rescued == CREW
        reward = oxygen * 10 // MAX_OXYGEN if is_full else 0
        oxygen = MAX_OXYGEN
        rescued = -1 if is_full else rescued - 1
        ramp = min(ramp + 1, LAST_RAMP) if params.difficulty_ramping else ramp
    return Dive(oxygen, rescued, surfaced, ramp, reward, lost)


def send_diver(divers: Pair, rng: Rng) -> Pair:
    """Return the divers, and a new one at an end of a row; both are drawn at random."""
    row, to_right = ROW << 10 * (1 + rng.integers(5, 8)), rng.integers(4, 2) == 0
    return (
        divers[0] if to_right else divers[0] | (row & COLUMN << 9),
        divers[1] | (row & COLUMN) if to_right else divers[1],
    )


def fly(s: State, shot: Board) -> Pair:
    """Return the player's bullets one cell further, with a new one.

    It flies from the cell `shot`, if that is not empty, to where the submarine faces.
    """
    return (
        moved(s.bullets[0] if s.faces_right else s.bullets[0] | shot, NONE),
        moved(s.bullets[1] | shot if s.faces_right else s.bullets[1], ALL),
    )


def send_enemy(s: State, pause: int, rng: Rng) -> tuple[Six, Six, Four, Board]:
    """Return fish, submarines, phases and `right` of the state after an enemy may have entered.

    It enters at an end of a random row when the timer is over, but not if others in that row move
    the other way. Enemies wait `pause` steps between two moves.
    """
    row = ROW << 10 * (1 + rng.integers(3, 8))
    to_right, is_sub = rng.integers(1, 2) == 0, rng.integers(2, 3) == 0
    others = bool((union(s.fish) | union(s.subs)) & row)
    enters = s.spawn_timer <= 0 and not (others and bool(s.right & row) != to_right)
    row = row if enters else NONE
    right = s.right | row if to_right else s.right & ~row
    entry = row & (COLUMN if to_right else COLUMN << 9)
    fish = add_enemies(s.fish, NONE if is_sub else entry, pause)
    subs = add_enemies(s.subs, entry if is_sub else NONE, pause)
    phase = set_phase(s.phase, entry if is_sub else NONE, ENEMY_COOL_DOWN - pause)
    return fish, subs, phase, right


def set_phase(phase: Four, cells: Board, number: int) -> Four:
    """Return the phases, with that of some cells replaced by a number."""
    return (
        phase[0] & ~cells | (cells if number & 1 else NONE),
        phase[1] & ~cells | (cells if number & 2 else NONE),
        phase[2] & ~cells | (cells if number & 4 else NONE),
        phase[3] & ~cells | (cells if number & 8 else NONE),
    )


def add_enemies(enemies: Six, cells: Board, pause: int) -> Six:
    """Return the enemies and new ones in some cells, which wait for `pause` steps: 2 to 5."""
    return (
        enemies[0],
        enemies[1],
        enemies[2] | (cells if pause == 2 else NONE),
        enemies[3] | (cells if pause == 3 else NONE),
        enemies[4] | (cells if pause == 4 else NONE),
        enemies[5] | (cells if pause == 5 else NONE),
    )


def union(enemies: Six) -> Board:
    """Return all cells with enemies."""
    return enemies[0] | enemies[1] | enemies[2] | enemies[3] | enemies[4] | enemies[5]


def shoot(enemies: Six, shots: Board) -> tuple[Six, Board]:
    """Return the enemies that are left, and the shots that are left.

    Each of `shots`, the cells of the player's bullets, hits one enemy there, the one that moves
    next.
    """
    after0 = shots & ~enemies[0]
    after1 = after0 & ~enemies[1]
    after2 = after1 & ~enemies[2]
    after3 = after2 & ~enemies[3]
    after4 = after3 & ~enemies[4]
    left = (
        enemies[0] & ~shots,
        enemies[1] & ~after0,
        enemies[2] & ~after1,
        enemies[3] & ~after2,
        enemies[4] & ~after3,
        enemies[5] & ~after4,
    )
    return left, after4 & ~enemies[5]


def rescue(divers: Pair, rescued: int, player: Board, x: int) -> tuple[Pair, int]:
    """Return the divers that are left and the number on board, after the player took some.

    It takes those of its cell, in column x, if there is room. Of two for one place it takes the one
    that came later, and so is nearer to where it came from.
    """
    left, right = bool(divers[0] & player), bool(divers[1] & player)
    one_place = left and right and rescued == CREW - 1
    left = left and rescued < CREW and not (one_place and x < 5)
    right = right and rescued < CREW and not (one_place and x >= 5)
    after = (
        divers[0] & ~player if left else divers[0],
        divers[1] & ~player if right else divers[1],
    )
    return after, rescued + left + right


def cells_of_shots(subs: Six, phase: Four, pause: int, right: Board) -> tuple[Board, Four]:
    """Return the cells from which submarines shoot in this step, and the phases after it.

    A submarine that waits for w steps until it moves shoots if w plus the phase of its cell is 0
    modulo 11. One that moves in this step (w = 0) waits `pause` steps anew, so that its phase is
    less by 1 + `pause` in the cell to which it goes, the next one to the right in cells of `right`.
    """
    shots = moved(subs[0] & cells_of_phase(phase, 0), right)
    shots = shots | (subs[1] & cells_of_phase(phase, 10)) | (subs[2] & cells_of_phase(phase, 9))
    shots = shots | (subs[3] & cells_of_phase(phase, 8)) | (subs[4] & cells_of_phase(phase, 7))
    shots = shots | (subs[5] & cells_of_phase(phase, 6))
    ones, twos, fours, eights = phase
    # 1 + pause times, the number in the four bits of each cell becomes less by 1: a bit changes if
    # all lower ones are 0, and in cells of 0 the result is 10, which is 8 + 2.
    for i in range(6):
        less = i <= pause
        zero = ~(ones | twos | fours | eights)
        eights = eights ^ (~(ones | twos | fours)) if less else eights
        fours = (fours ^ ~(ones | twos)) & ~zero if less else fours
        twos = twos ^ (~ones & ~zero) | zero if less else twos
        ones = ~ones & ~zero if less else ones
    to = moved(subs[0], right)
    after = (
        phase[0] & ~to | moved(subs[0] & ones, right),
        phase[1] & ~to | moved(subs[0] & twos, right),
        phase[2] & ~to | moved(subs[0] & fours, right),
        phase[3] & ~to | moved(subs[0] & eights, right),
    )
    return shots, after


def cells_of_phase(phase: Four, number: int) -> Board:
    """Return the cells whose phase is a number."""
    cells = phase[0] if number & 1 else ~phase[0]
    cells = cells & (phase[1] if number & 2 else ~phase[1])
    cells = cells & (phase[2] if number & 4 else ~phase[2])
    return cells & (phase[3] if number & 8 else ~phase[3])


def advance(
    enemies: Six, shots: Board, player: Board, pause: int, right: Board
) -> tuple[Six, Board, bool]:
    """Return the enemies after a step, the shots that are left, and whether the player is hit.

    Those that wait for 0 steps move, from cells of `right` to the right, and wait for `pause` steps
    then; a shot in the cell that one enters hits it.
    """
    ahead = moved(enemies[0], right)
    hit = bool((union(enemies) | ahead) & player)
    others = (enemies[1], enemies[2], enemies[3], enemies[4], enemies[5], NONE)
    return add_enemies(others, ahead & ~shots, pause), shots & ~ahead, hit


def observe(s: State, params: Params) -> tuple[Board, ...]:
    """Return ten planes.

    They are the submarine's front, its back and its bullets; trails of all that moves; enemies'
    bullets, fish, submarines; gauges of oxygen and of divers on board, in row 9; divers.
    """
    fish, subs = union(s.fish), union(s.subs)
    trails = behind(fish | subs, s.right) | behind(s.divers[0], NONE) | behind(s.divers[1], ALL)
    # As many columns of row 0, from the left, as there are tenths of the oxygen.
    oxygen = ROW >> 10 - max(s.oxygen, 0) * 10 // MAX_OXYGEN
    crew = max(s.rescued, 0)
    return (
        cell(s.y, s.x),
        cell(s.y, s.x - 1 if s.faces_right else s.x + 1),
        s.bullets[0] | s.bullets[1],
        trails,
        s.enemy_bullets[0] | s.enemy_bullets[1],
        fish,
        subs,
        oxygen << 90,
        (ROW >> 10 - crew) << 99 - crew,  # columns 9 - crew to 8 of row 9, as in the original
        s.divers[0] | s.divers[1],
    )


DYNAMICS = game("MinAtar/Seaquest-v1", step, reset, observe, planes=10, actions=6)
