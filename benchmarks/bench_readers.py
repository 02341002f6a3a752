"""Reading 10 million visits in 20 segments: a range, one user, a full scan; and what indexes cost.

Every contestant has the same rows, and every answer is compared with all others. Times are from
fresh processes: cold is opening the table and the first answer, warm the median of those after it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_data
import bench_reader_peers as peers
import bench_reader_s3
from bench_report import Verdict, median, ms, say, table, verdicts

if TYPE_CHECKING:
    import argparse

    import pyarrow as pa

SEGMENTS, PROCESSES = 20, 3
ROWS_PER_USER = 100
LOOKUPS = 10
"""Users that a process asks for, one after the other."""
OURS = [peers.OURS.name, peers.OURS_SORTED.name, peers.OURS_POSTINGS.name]
BTREE = peers.LanceIndexed.name


def run(root: Path, options: argparse.Namespace) -> bool:
    """Write, ask, compare."""
    rows = 1_000_000 if options.quick else 10_000_000
    users = rows // ROWS_PER_USER
    names = [n for n in peers.ALL if not options.only or n in {*options.only, *OURS}]
    batches = _batches(rows, users)
    targets = _write(root, names, batches)
    del batches
    targets += _index_build(root, names)
    found = {
        "time_range": _ask(root, names, "time_range", [_middle(rows)], PROCESSES),
        "lookup": _ask(root, names, "lookup", _some_users(users), PROCESSES),
        "grouped": _ask(root, [*names, *peers.ON_OUR_FILES], "grouped", [[]], 1),
    }
    if not all(_agree(question, answers) for question, answers in found.items()):
        return False
    _tell(names, rows, found)
    targets += bench_reader_s3.run(root / "s3", names)
    return verdicts([*_compared(names, found), *targets])


def _batches(rows: int, users: int) -> list[pa.Table]:
    begun = time.perf_counter()
    size = rows // SEGMENTS
    made = [
        bench_data.visits(size, first_id=number * size, users=users) for number in range(SEGMENTS)
    ]
    say(f"{rows:,} rows of {users:,} users made in {time.perf_counter() - begun:.0f} s")
    return made


def _middle(rows: int) -> list[int]:
    """One per cent of the time, from the middle on: it begins inside of a segment."""
    first = bench_data.START_MS + rows * bench_data.ROW_EVERY_MS * 511 // 1000
    return [first, first + rows * bench_data.ROW_EVERY_MS // 100 - 1]


def _some_users(users: int) -> list[list[str]]:
    chance = random.Random(5)  # noqa: S311 - users, no secrets
    return [[bench_data.user_name(chance.randrange(users))] for _ in range(LOOKUPS)]


# --- writing ------------------------------------------------------------------------------------


def _write(root: Path, names: list[str], batches: list[pa.Table]) -> list[Verdict]:
    """Everybody writes the rows once; ours with the default policy in turns with no indexes."""
    lines = []
    share = _write_in_turns(root, batches)
    for contestant in (peers.ALL[name] for name in names if name != peers.OURS.name):
        folder = root / contestant.folder
        if folder.exists():
            continue
        begun = time.perf_counter()
        contestant.write(folder, batches)
        lines.append((contestant.folder, f"{time.perf_counter() - begun:.1f}", _mb(folder)))
    for name, seconds in share.items():
        lines.append((name, f"{sum(seconds):.1f}", _mb(root / _OF[name].folder)))
    table(["written", "s", "MB"], lines)
    added = median(share[peers.OURS.name]) / median(share[peers.OURS_BARE.name]) - 1
    return [Verdict("default indexes add ≤ 25% to a write", f"{added:+.0%}", added <= 0.25)]


_OF = {c.name: c for c in (peers.OURS, peers.OURS_BARE)}


def _write_in_turns(root: Path, batches: list[pa.Table]) -> dict[str, list[float]]:
    appends = {name: one.create(root / one.folder) for name, one in _OF.items()}
    times: dict[str, list[float]] = {name: [] for name in appends}
    for number, batch in enumerate(batches):
        for name in appends if number % 2 else reversed(appends):
            begun = time.perf_counter()
            appends[name](batch)
            times[name].append(time.perf_counter() - begun)
    return times


def _mb(folder: Path) -> str:
    return f"{sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()) / 1e6:.0f}"


def _index_build(root: Path, names: list[str]) -> list[Verdict]:
    """Build and size of what finds a user: our postings against Lance's B-tree."""
    from bench_index_build import lance_btree, our_postings

    ours = our_postings(root / peers.OURS_POSTINGS.folder)
    if BTREE not in names:
        return []
    theirs = lance_btree(root / peers.Lance.folder, root / "lance-again")
    table(
        ["index on user_id", "built in s", "MB"],
        [
            (name, f"{one.seconds:.2f}", f"{one.size_bytes / 1e6:.1f}")
            for name, one in (("strandline postings", ours), (BTREE, theirs))
        ],
    )
    return [
        Verdict("index built as fast as Lance's", _ratio(ours.seconds, theirs.seconds),
                ours.seconds <= theirs.seconds),
        Verdict("index as small as Lance's", _ratio(ours.size_bytes, theirs.size_bytes),
                ours.size_bytes <= theirs.size_bytes),
    ]  # fmt: skip


# --- asking -------------------------------------------------------------------------------------


def _ask(
    root: Path, names: list[str], question: str, asked: list[Any], processes: int
) -> dict[str, list[dict[str, Any]]]:
    """Fresh processes, in turns, so that a busy moment of the machine is shared."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(processes + 1):
        for name in names:
            answer = _child(root, name, question, asked if turn else asked[:1])
            if turn:  # whoever is first may have to compile what it imports
                found[name].append(answer)
    return found


def _child(root: Path, name: str, question: str, asked: list[Any]) -> dict[str, Any]:
    program = Path(__file__).with_name("bench_read_child.py")
    folder = root / peers.contestant(name).folder
    command = [sys.executable, str(program), name, str(folder), question, json.dumps(asked)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{name}, {question}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _agree(question: str, answers: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether all gave the same rows; slow ones may not have come to all that was asked."""
    every = [(name, one["digests"]) for name, given in answers.items() for one in given]
    expected = max((digests for _, digests in every), key=len)
    for name, digests in every:
        if digests != expected[: len(digests)]:
            say(f"{question}: {name} answers {digests}, not {expected}")
            return False
    return True


def _cold(answers: list[dict[str, Any]]) -> float:
    return median([one["cold"] for one in answers])


def _warm(answers: list[dict[str, Any]]) -> float:
    return median([median(one["warm"]) for one in answers])


def _tell(names: list[str], rows: int, found: dict[str, Any]) -> None:
    lines = [
        (
            name,
            *(
                ms(time_of(found[question][name]))
                for question in ("time_range", "lookup")
                for time_of in (_cold, _warm)
            ),
            ms(_warm(found["grouped"][name])),
        )
        for name in names
    ]
    nothing = [""] * (len(lines[0]) - 2)
    lines += [(name, *nothing, ms(_warm(found["grouped"][name]))) for name in peers.ON_OUR_FILES]
    head = ["1% range cold ms", "warm", "one user cold ms", "warm", "two columns grouped, warm ms"]
    table([f"{rows:,} rows, {SEGMENTS} segments", *head], lines)


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f} ×"


def _compared(names: list[str], found: dict[str, Any]) -> list[Verdict]:
    """Ours against the best of the others, or against the one that was named."""
    others = [name for name in names if name not in OURS]
    targets = []

    def add(what: str, question: str, ours: str, against: list[str], time_of: Any) -> None:
        answers, present = found[question], [name for name in against if name in names]
        if present:
            best = min(present, key=lambda name: time_of(answers[name]))
            mine, theirs = time_of(answers[ours]), time_of(answers[best])
            told = f"{_ratio(mine, theirs)} ({ms(mine)} against {ms(theirs)} ms, {best})"
            targets.append(Verdict(what, told, mine <= theirs))

    add("1% range warm ≤ best peer", "time_range", OURS[0], others, _warm)
    add("1% range cold ≤ best peer", "time_range", OURS[0], others, _cold)
    for name in OURS:
        add(f"one user warm ≤ Lance's B-tree, {name}", "lookup", name, [BTREE], _warm)
        add(f"one user cold ≤ Lance's B-tree, {name}", "lookup", name, [BTREE], _cold)
    add("grouped ≤ DuckDB", "grouped", OURS[0], [peers.DuckDb.name], _warm)
    add("grouped ≤ Delta's engine", "grouped", OURS[0], [peers.DeltaEngine.name], _warm)
    return targets
