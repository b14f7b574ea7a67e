"""The rows of ./dev bench loss: points, figures and goals.

Nothing here measures. A cell is a bottleneck, a point is one measurement of one stack there, a row
compares two points of the same turns.
"""

import dataclasses
import itertools
import statistics

RTTS = (1, 10, 50, 100, 200)  # ms
LOSSES = (0, 0.1, 1)          # percent, of each direction
RATES = (100, 1000)           # Mbit/s
BUFFERS = (0.5, 2)            # of the bandwidth-delay product
FRAME = 1514                  # bytes, as the wire counts them
SPARE_FRAMES = 4096           # additional short ones
BURST_LOSS = 20               # percent, of the burst that a plot shows
BURST_S = 0.2
LATE_SHARE = 0.05             # share of late frames above which the wire was the limit
DROP_SHARE = 0.0001
IDLE_SHARE = 0.02             # idle share of the stacks' cores below which they were full
# A group's figure, and its additional seconds: programs start and end, and echoes have a ramp and
# a warm-up.
KEYS = {"goodput": "mbit", "fairness": "share", "echo": "p99", "mixed": "mbit"}
OVERHEAD_S = {"goodput": 2, "fairness": 3, "echo": 5, "mixed": 2}
# The kernel's control that one of ours is compared with, and its goal.
GOODPUT_GOALS = {"cubic": 0.95, "bbr": 0.9}
FAIR = (0.4, 0.6)             # of the bottleneck


@dataclasses.dataclass(frozen=True)
class Cell:
    """A bottleneck in both directions."""

    rate: int      # Mbit/s
    rtt: int       # ms
    loss: float    # percent
    buffer: float  # of the bandwidth-delay product

    def texts(self):
        rate = f"{self.rate} Mbit/s" if self.rate < 1000 else f"{self.rate / 1000:g} Gbit/s"
        return [rate, f"{self.rtt} ms", f"{self.loss:g} %", f"{self.buffer:g}"]

    def name(self):
        return ", ".join(self.texts()) + " BDP"

    def bdp_bytes(self):
        return self.rate * self.rtt * 125

    def queue_bytes(self):
        """At least two full frames: otherwise sometimes no frame would pass."""
        return max(int(self.bdp_bytes() * self.buffer), 2 * FRAME)

    def hold_frames(self):
        """Frames in flight, half of the BDP, and those in the queue."""
        return (self.bdp_bytes() + self.queue_bytes()) // FRAME + SPARE_FRAMES

    def wire_options(self, seed):
        return ["--rate", self.rate, "--delay", f"{self.rtt / 2:g}", "--loss", f"{self.loss:g}",
                "--queue", f"{self.queue_bytes()}B", "--hold", self.hold_frames(), "--seed", seed]


@dataclasses.dataclass(frozen=True)
class Point:
    """A group, a cell, the stacks, and whether others use the link as well.

    Stacks: coronet, kernel, to-kernel, from-kernel; fairness: coronet (and a kernel's flow),
    kernel (and another of them).
    """

    group: str
    cell: Cell
    control: str = "cubic"
    background: bool = False
    stack: str = "coronet"

    def name(self):
        extra = " beside a stream" if self.background else ""
        return f"{self.group} {self.cell.name()}{extra}: {self.stack} {self.control}"

    def needs_option(self):
        """Whether our programs must support --cc for it."""
        return self.control != "cubic" and self.stack != "kernel"


def point_of(found):
    """The inverse of dataclasses.asdict(); other keys are ignored."""
    fields = {field.name: found[field.name] for field in dataclasses.fields(Point)}
    return Point(**{**fields, "cell": Cell(**found["cell"])})


@dataclasses.dataclass(frozen=True)
class Row:
    """Compares our point with the kernel's."""

    ours: Point

    def points(self):
        return self.ours, dataclasses.replace(self.ours, stack="kernel")

    def value(self, ours, theirs):
        """Returns the figure of a turn that both have, or None."""
        key = KEYS[self.ours.group]
        if self.ours.group == "fairness":
            return ours[key]
        return ours[key] / theirs[key] if theirs[key] else None

    def bounds(self):
        return {"goodput": (GOODPUT_GOALS[self.ours.control], None), "fairness": FAIR,
                "echo": (None, 1)}.get(self.ours.group, (None, None))

    def goal(self):
        low, high = self.bounds()
        if None not in (low, high):
            return f"{low:g} - {high:g}"
        return f">= {low:g}" if low else f"<= {high:g}" if high else ""

    def reached(self, value):
        low, high = self.bounds()
        return (low is None or value >= low) and (high is None or value <= high)


def all_rows():
    # Cells in which two flows have time to converge; random losses would decide.
    fair = ([Cell(100, rtt, 0, buffer) for buffer in BUFFERS for rtt in RTTS[1:]]
            + [Cell(1000, rtt, 0, buffer) for buffer in BUFFERS for rtt in (10, 50)])
    points = [Point("goodput", Cell(rate, rtt, loss, buffer), control)
              for rate, buffer, rtt, loss, control
              in itertools.product(RATES, BUFFERS, RTTS, LOSSES, GOODPUT_GOALS)]
    points += [Point("fairness", cell, control) for cell in fair for control in GOODPUT_GOALS]
    points += [Point("echo", Cell(100, rtt, loss, 2)) for rtt in RTTS for loss in LOSSES]
    points += [Point("echo", Cell(100, rtt, 0, buffer), background=True)
               for rtt in (10, 50, 100) for buffer in BUFFERS]
    points += [Point("mixed", Cell(rate, rtt, 0, 2), stack=stack) for rate in RATES
               for rtt in (10, 100) for stack in ("to-kernel", "from-kernel")]
    return list(map(Row, points))


def quick_rows():
    """One row of each kind, and the most significant ones for loss."""
    return list(map(Row, [
        Point("goodput", Cell(100, 10, 1, 2)), Point("goodput", Cell(100, 50, 0, 0.5)),
        Point("goodput", Cell(1000, 10, 0, 2)), Point("goodput", Cell(100, 10, 1, 2), "bbr"),
        Point("fairness", Cell(100, 10, 0, 2)), Point("echo", Cell(100, 10, 1, 2))]))


# ---- plots: one run each ----

PLOT_CELL = Cell(100, 50, 0, 2)


@dataclasses.dataclass(frozen=True)
class Trace:
    """name of the plot; which flows, (stack, control, begins at), together; whether a burst of
    losses comes, and how long all of it takes."""

    plot: str
    flows: tuple
    seconds: float
    burst_at: float = None


def all_traces():
    alone = [(stack, control) for control in GOODPUT_GOALS for stack in ("coronet", "kernel")]
    return [*[Trace("loss-start", ((*one, 0),), 4) for one in alone],
            *[Trace("loss-burst", ((*one, 0),), 10, 4) for one in alone],
            *[Trace(f"loss-competition-{control}",
                    (("coronet", control, 0), ("kernel", control, 6)), 20)
              for control in GOODPUT_GOALS]]


# ---- durations ----

def skip_seconds(cell):
    """Returns the skipped seconds at the start of a goodput measurement: ten round trips."""
    return max(0.5, 0.01 * cell.rtt)


def measured_seconds(point, seconds):
    """A long path gets more time, and twice as much if rare losses decide, since few make the
    result random. Two flows need time to converge."""
    rtt = point.cell.rtt / 1000
    if point.group == "fairness":
        return max(5 * seconds, 100 * rtt)
    if point.group == "echo":
        return 1.25 * seconds
    rare = 0 < point.cell.loss < 1 and point.cell.rtt >= 50
    return max(seconds, 25 * rtt) * (2 if rare else 1)


def expected_seconds(points, traces, seconds):
    """Returns the seconds of one turn over these rows, and of the traces, which have no turns."""
    return (sum(measured_seconds(point, seconds) + OVERHEAD_S[point.group]
                + (skip_seconds(point.cell) if KEYS[point.group] == "mbit" else 0)
                for point in points), sum(trace.seconds + 2 for trace in traces))


# ---- figures of a run ----

def goodput(samples, begin, end):
    """Returns Mbit/s of (seconds, bytes) from the last line before one time to the first one after
    another; None without two lines."""
    if not samples:
        return None
    t0, n0 = max((one for one in samples if one[0] <= begin), default=samples[0])
    t1, n1 = min((one for one in samples if one[0] >= end), default=samples[-1])
    return (n1 - n0) * 8e-6 / (t1 - t0) if t1 > t0 else None


def rate_curve(samples, begins, step=0):
    """Returns (middle of the interval, Mbit/s) between lines at least so many seconds apart."""
    found, last = [], samples[:1]
    for time, taken in samples[1:]:
        (since, had), = last
        if time - since >= step and time > since:
            found.append(((since + time) / 2 + begins, (taken - had) * 8e-6 / (time - since)))
            last = [(time, taken)]
    return found


def limits_of(wire, tap_dropped=0):
    """Returns why the wire may have been the limit instead of a stack, by its counters."""
    sides = wire["a_to_b"], wire["b_to_a"]
    late = max(side["late"] / max(side["out_frames"], 1) for side in sides)
    own = sum(side[key] for side in sides
              for key in ("missed", "overflowed", "no_frame", "refused"))
    enough = DROP_SHARE * max(sum(side["out_frames"] for side in sides), 1)
    limits = ((late > LATE_SHARE, f"the wire was late with {late:.0%} of the frames"),
              (own > enough, f"the wire itself dropped {own:,} frames"),
              (tap_dropped > enough, f"a TAP's queue dropped {tap_dropped:,} frames"))
    return [text for is_limit, text in limits if is_limit]


# ---- judging ----

@dataclasses.dataclass
class Judged:
    """A row's result: PASS, MISS, FULL, "" without a goal, or "not measured".

    runs: of both points, by turn; values: of the turns that both have.
    """

    row: Row
    runs: tuple
    values: list = ()
    result: str = "not measured"
    note: str = ""


def judge_row(row, results, reasons):
    """results: {point: {turn: found}}; reasons: {point: why it has none}."""
    judged = Judged(row, [results.get(point, {}) for point in row.points()])
    ours, theirs = judged.runs
    turns = [turn for turn in ours if turn in theirs]
    values = (row.value(ours[turn], theirs[turn]) for turn in turns)
    judged.values = [value for value in values if value is not None]

    def often(test, text):
        """Returns the stacks that are so in at least half of the turns."""
        for point, runs in zip(row.points(), judged.runs):
            those = [runs[turn] for turn in turns if test(runs[turn])]
            if those and 2 * len(those) >= len(turns):
                yield f"{point.stack}: {text(those[0])}"

    if not judged.values:
        notes = dict.fromkeys(reasons[point] for point in row.points() if point in reasons)
    else:
        notes = list(often(lambda run: run["limited"], lambda run: run["limited"][0]))
        if not row.goal():
            judged.result = ""
        elif notes:
            judged.result = "FULL"
        elif row.reached(statistics.median(judged.values)):
            judged.result = "PASS"
        else:
            judged.result = "MISS"
            # A polling stack leaves no idle time, although it may have time to spare.
            notes = often(lambda run: run["idle"] < IDLE_SHARE, lambda _: "its cores were full")
    judged.note = "; ".join(notes)
    return judged
