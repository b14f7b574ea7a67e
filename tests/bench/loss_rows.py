"""The rows of ./dev bench loss: what is measured, what it says, and its goals.

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
SPARE_FRAMES = 4096           # held besides: short ones
BURST_LOSS = 20               # percent, of the burst that a plot shows
BURST_S = 0.2
LATE_SHARE = 0.05             # of frames: above, the wire was the limit
DROP_SHARE = 0.0001
IDLE_SHARE = 0.02             # of the stacks' cores: below, they were full
# The figure of a group, and how long it takes besides: programs start and end, and echoes have a
# ramp and a warm-up.
KEYS = {"goodput": "mbit", "fairness": "share", "echo": "p99", "mixed": "mbit"}
OVERHEAD_S = {"goodput": 2, "fairness": 3, "echo": 5, "mixed": 2}
# The kernel's control that one of ours is measured beside, and its goal.
GOODPUT_GOALS = {"cubic": 0.95, "bbr": 0.9}
FAIR = (0.4, 0.6)             # of the bottleneck


@dataclasses.dataclass(frozen=True)
class Cell:
    """A bottleneck, both ways."""

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
        """No less than two full frames, or nothing would pass at a time."""
        return max(int(self.bdp_bytes() * self.buffer), 2 * FRAME)

    def hold_frames(self):
        """Those on the way, half of the BDP, and those that wait for it."""
        return (self.bdp_bytes() + self.queue_bytes()) // FRAME + SPARE_FRAMES

    def wire_options(self, seed):
        return ["--rate", self.rate, "--delay", f"{self.rtt / 2:g}", "--loss", f"{self.loss:g}",
                "--queue", f"{self.queue_bytes()}B", "--hold", self.hold_frames(), "--seed", seed]


@dataclasses.dataclass(frozen=True)
class Point:
    """group, where, which stacks, and whether others use the link as well.

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
        """Whether our programs have to know --cc for it."""
        return self.control != "cubic" and self.stack != "kernel"


def point_of(found):
    """dataclasses.asdict() backwards; what else is in there is left alone."""
    fields = {field.name: found[field.name] for field in dataclasses.fields(Point)}
    return Point(**{**fields, "cell": Cell(**found["cell"])})


@dataclasses.dataclass(frozen=True)
class Row:
    """Our point beside the kernel's."""

    ours: Point

    def points(self):
        return self.ours, dataclasses.replace(self.ours, stack="kernel")

    def value(self, ours, theirs):
        """The figure of a turn that both have; None if it has none."""
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
    # Where two flows have time to find their shares; losses by chance would decide.
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
    """One of each kind, and what tells most about loss."""
    return list(map(Row, [
        Point("goodput", Cell(100, 10, 1, 2)), Point("goodput", Cell(100, 50, 0, 0.5)),
        Point("goodput", Cell(1000, 10, 0, 2)), Point("goodput", Cell(100, 10, 1, 2), "bbr"),
        Point("fairness", Cell(100, 10, 0, 2)), Point("echo", Cell(100, 10, 1, 2))]))


# ---- what is drawn: one run each ----

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


# ---- how long it takes ----

def skip_seconds(cell):
    """Of the start, where goodput is measured: ten round trips."""
    return max(0.5, 0.01 * cell.rtt)


def measured_seconds(point, seconds):
    """Round trips count: a long path gets more time, and twice as much where losses are rare and
    decide, which a few make a matter of luck. Two flows need time to find their shares."""
    rtt = point.cell.rtt / 1000
    if point.group == "fairness":
        return max(5 * seconds, 100 * rtt)
    if point.group == "echo":
        return 1.25 * seconds
    rare = 0 < point.cell.loss < 1 and point.cell.rtt >= 50
    return max(seconds, 25 * rtt) * (2 if rare else 1)


def expected_seconds(points, traces, seconds):
    """Of one turn over these, and of the traces, which have no turns."""
    return (sum(measured_seconds(point, seconds) + OVERHEAD_S[point.group]
                + (skip_seconds(point.cell) if KEYS[point.group] == "mbit" else 0)
                for point in points), sum(trace.seconds + 2 for trace in traces))


# ---- what a run says ----

def goodput(samples, begin, end):
    """Mbit/s of (seconds, bytes) from the last line before one time to the first one after
    another; None without two lines."""
    if not samples:
        return None
    t0, n0 = max((one for one in samples if one[0] <= begin), default=samples[0])
    t1, n1 = min((one for one in samples if one[0] >= end), default=samples[-1])
    return (n1 - n0) * 8e-6 / (t1 - t0) if t1 > t0 else None


def curve(samples, begins, step=0):
    """(middle of the interval, Mbit/s) from one line to another that comes at least so many
    seconds later."""
    found, last = [], samples[:1]
    for time, taken in samples[1:]:
        (since, had), = last
        if time - since >= step and time > since:
            found.append(((since + time) / 2 + begins, (taken - had) * 8e-6 / (time - since)))
            last = [(time, taken)]
    return found


def limits_of(wire, tap_dropped=0):
    """Why the wire, and no stack, may have been the limit: its counters."""
    ways = wire["a_to_b"], wire["b_to_a"]
    late = max(way["late"] / max(way["out_frames"], 1) for way in ways)
    own = sum(way[key] for way in ways for key in ("missed", "overflowed", "no_frame", "refused"))
    enough = DROP_SHARE * max(sum(way["out_frames"] for way in ways), 1)
    limits = ((late > LATE_SHARE, f"the wire was late with {late:.0%} of the frames"),
              (own > enough, f"the wire itself dropped {own:,} frames"),
              (tap_dropped > enough, f"a TAP's queue dropped {tap_dropped:,} frames"))
    return [text for is_limit, text in limits if is_limit]


# ---- judging ----

@dataclasses.dataclass
class Judged:
    """What a row says: result is PASS, MISS, FULL, "" without a goal, or "not measured".

    runs: of both points, by turn; values: of the turns that both have.
    """

    row: Row
    runs: tuple
    values: list = ()
    result: str = "not measured"
    note: str = ""


def judge(row, results, reasons):
    """results: {point: {turn: found}}; reasons: why a point has none."""
    judged = Judged(row, [results.get(point, {}) for point in row.points()])
    ours, theirs = judged.runs
    turns = [turn for turn in ours if turn in theirs]
    values = (row.value(ours[turn], theirs[turn]) for turn in turns)
    judged.values = [value for value in values if value is not None]

    def often(test, text):
        """Which stacks are so in half of the turns, or more."""
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
            # A stack that polls may leave nothing idle and yet have time to spare.
            notes = often(lambda run: run["idle"] < IDLE_SHARE, lambda _: "its cores were full")
    judged.note = "; ".join(notes)
    return judged
