"""The rows of ./dev bench loss: what is measured, what it says, and its goals.

Nothing here measures. A cell is a bottleneck, a point is one measurement of
one stack there, a row compares two points of the same turns.
"""

import dataclasses
import statistics

RTTS = (1, 10, 50, 100, 200)  # ms
LOSSES = (0, 0.1, 1)          # percent, of each direction
RATES = (100, 1000)           # Mbit/s
BUFFERS = (0.5, 2)            # of the bandwidth-delay product
FRAME = 1514                  # bytes, as the wire counts them
SPARE_FRAMES = 4096           # held besides: short ones
BURST_LOSS = 20               # percent, of the burst that a plot shows
BURST_S = 0.2
GROUPS = ("goodput", "fairness", "echo", "mixed", "plots")
# The kernel's control that one of ours is measured beside, and its goal.
GOODPUT_GOALS = {"cubic": 0.95, "bbr": 0.9}
FAIR = (0.4, 0.6)             # of the bottleneck
LATE_SHARE = 0.05             # of frames: above, the wire was the limit
DROP_SHARE = 0.0001
IDLE_SHARE = 0.02             # of the stacks' cores: below, they were full


def percent(value):
    return f"{value:g} %"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A bottleneck, both ways."""

    rate: int      # Mbit/s
    rtt: int       # ms
    loss: float    # percent
    buffer: float  # of the bandwidth-delay product

    def name(self):
        return (f"{self.rate_text()}, {self.rtt} ms, {percent(self.loss)}, "
                f"{self.buffer:g} BDP")

    def rate_text(self):
        return (f"{self.rate} Mbit/s" if self.rate < 1000
                else f"{self.rate / 1000:g} Gbit/s")

    def bdp_bytes(self):
        return self.rate * self.rtt * 125

    def queue_bytes(self):
        """No less than two full frames, or nothing would pass at a time."""
        return max(int(self.bdp_bytes() * self.buffer), 2 * FRAME)

    def hold_frames(self):
        """Those on the way, half of the BDP, and those that wait for it."""
        return (self.bdp_bytes() + self.queue_bytes()) // FRAME + SPARE_FRAMES

    def wire_options(self, seed):
        return ["--rate", self.rate, "--delay", f"{self.rtt / 2:g}",
                "--loss", f"{self.loss:g}", "--queue", f"{self.queue_bytes()}B",
                "--hold", self.hold_frames(), "--seed", seed]

    def as_json(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Point:
    """group, where, which stacks, and whether others use the link as well.

    Stacks: coronet, kernel, to-kernel, from-kernel; fairness: coronet (and a
    kernel's flow), kernel (and another of them).
    """

    group: str
    cell: Cell
    stack: str
    control: str = "cubic"
    background: bool = False

    def name(self):
        extra = " beside a stream" if self.background else ""
        return (f"{self.group} {self.cell.name()}{extra}: "
                f"{self.stack} {self.control}")

    def needs_option(self):
        """Whether our programs have to know --cc for it."""
        return self.control != "cubic" and self.stack != "kernel"

    def as_json(self):
        return {**dataclasses.asdict(self), "cell": self.cell.as_json()}


def point_of(found):
    """as_json() backwards; what else is in there is left alone."""
    names = [field.name for field in dataclasses.fields(Point)]
    return Point(**{**{name: found[name] for name in names},
                    "cell": Cell(**found["cell"])})


class Row:
    """Our point, the kernel's, and a figure of each turn that both have."""

    def __init__(self, ours, theirs, value, low=None, high=None):
        self.ours, self.theirs, self.value = ours, theirs, value
        self.low, self.high = low, high

    def points(self):
        return [self.ours, self.theirs]

    def text(self):
        extra = ", beside a stream" if self.ours.background else ""
        stack = "" if self.ours.stack == "coronet" else f", {self.ours.stack}"
        return f"{self.ours.cell.name()}, {self.ours.control}{stack}{extra}"

    def goal(self):
        if self.low is not None and self.high is not None:
            return f"{self.low:g} - {self.high:g}"
        if self.low is not None:
            return f">= {self.low:g}"
        return f"<= {self.high:g}" if self.high is not None else ""


def goodput_ratio(ours, theirs):
    return ours["mbit"] / theirs["mbit"] if theirs["mbit"] else None


def our_share(ours, _theirs):
    return ours["share"]


def p99_ratio(ours, theirs):
    return ours["p99"] / theirs["p99"]


def pair(group, cell, control="cubic", background=False, stack="coronet"):
    return (Point(group, cell, stack, control, background),
            Point(group, cell, "kernel", control, background))


def all_cells():
    return [Cell(rate, rtt, loss, buffer) for rate in RATES
            for buffer in BUFFERS for rtt in RTTS for loss in LOSSES]


def fair_cells():
    """Where two flows have time to find their shares; losses by chance are
    left out: they would decide."""
    return ([Cell(100, rtt, 0, buffer) for buffer in BUFFERS
             for rtt in (10, 50, 100, 200)]
            + [Cell(1000, rtt, 0, buffer) for buffer in BUFFERS
               for rtt in (10, 50)])


def echo_cells():
    """(cell, whether a stream fills it)."""
    return ([(Cell(100, rtt, loss, 2), False) for rtt in RTTS
             for loss in LOSSES]
            + [(Cell(100, rtt, 0, buffer), True) for rtt in (10, 50, 100)
               for buffer in BUFFERS])


def goodput_row(cell, control):
    return Row(*pair("goodput", cell, control), goodput_ratio,
               low=GOODPUT_GOALS[control])


def fairness_row(cell, control):
    return Row(*pair("fairness", cell, control), our_share, *FAIR)


def echo_row(cell, background):
    return Row(*pair("echo", cell, background=background), p99_ratio, high=1)


def all_rows():
    rows = [goodput_row(cell, control) for cell in all_cells()
            for control in GOODPUT_GOALS]
    rows += [fairness_row(cell, control) for cell in fair_cells()
             for control in GOODPUT_GOALS]
    rows += [echo_row(*one) for one in echo_cells()]
    rows += [Row(*pair("mixed", Cell(rate, rtt, 0, 2), stack=stack),
                 goodput_ratio)
             for rate in RATES for rtt in (10, 100)
             for stack in ("to-kernel", "from-kernel")]
    return rows


def quick_rows():
    """One of each kind, and what tells most about loss."""
    return [goodput_row(Cell(100, 10, 1, 2), "cubic"),
            goodput_row(Cell(100, 50, 0, 0.5), "cubic"),
            goodput_row(Cell(1000, 10, 0, 2), "cubic"),
            goodput_row(Cell(100, 10, 1, 2), "bbr"),
            fairness_row(Cell(100, 10, 0, 2), "cubic"),
            echo_row(Cell(100, 10, 1, 2), False)]


# ---- what is drawn: one run each ----

PLOT_CELL = Cell(100, 50, 0, 2)


@dataclasses.dataclass(frozen=True)
class Trace:
    """name of the plot; which flows, (stack, control, begins at), together;
    whether a burst of losses comes, and how long all of it takes."""

    plot: str
    flows: tuple
    seconds: float
    burst_at: float = None


def all_traces():
    alone = [("coronet", "cubic"), ("kernel", "cubic"), ("coronet", "bbr"),
             ("kernel", "bbr")]
    traces = [Trace("loss-start", ((*one, 0),), 4) for one in alone]
    traces += [Trace("loss-burst", ((*one, 0),), 10, 4) for one in alone]
    traces += [Trace(f"loss-competition-{control}",
                     (("coronet", control, 0), ("kernel", control, 6)), 20)
               for control in ("cubic", "bbr")]
    return traces


# ---- how long it takes ----

def skip_seconds(cell):
    """Of the start, where goodput is measured: ten round trips."""
    return max(0.5, 0.01 * cell.rtt)


def measured_seconds(point, seconds):
    """Round trips count: a long path gets more time, and twice as much where
    losses are rare and decide, which a few make a matter of luck. Two flows
    need time to find their shares."""
    rtt = point.cell.rtt / 1000
    if point.group == "fairness":
        return max(5 * seconds, 100 * rtt)
    if point.group == "echo":
        return 1.25 * seconds
    rare = 0 < point.cell.loss < 1 and point.cell.rtt >= 50
    return max(seconds, 25 * rtt) * (2 if rare else 1)


# Programs start and end, and echoes have a ramp and a warm-up.
OVERHEAD_S = {"goodput": 2, "mixed": 2, "fairness": 3, "echo": 5}


def expected_seconds(points, traces, seconds):
    """Of one turn over these, and of the traces, which have no turns."""
    turn = sum(measured_seconds(point, seconds) + OVERHEAD_S[point.group]
               + (skip_seconds(point.cell) if point.group in ("goodput",
                                                              "mixed") else 0)
               for point in points)
    return turn, sum(trace.seconds + 2 for trace in traces)


# ---- what a run says ----

def goodput(samples, begin, end):
    """Mbit/s of (seconds, bytes) from the last line before one time to the
    first one after another; None without two lines."""
    if not samples:
        return None
    t0, n0 = max((one for one in samples if one[0] <= begin),
                 default=samples[0])
    t1, n1 = min((one for one in samples if one[0] >= end),
                 default=samples[-1])
    return (n1 - n0) * 8e-6 / (t1 - t0) if t1 > t0 else None


def curve(samples, begins, step=0):
    """(middle of the interval, Mbit/s) from one line to another that comes
    at least so many seconds later."""
    found, last = [], None
    for time, taken in samples:
        if last is None:
            last = (time, taken)
        elif time - last[0] >= step and time > last[0]:
            found.append(((last[0] + time) / 2 + begins,
                          (taken - last[1]) * 8e-6 / (time - last[0])))
            last = (time, taken)
    return found


def limits_of(wire, tap_dropped=0):
    """Why the wire, and no stack, may have been the limit: its counters."""
    found = []
    ways = (wire["a_to_b"], wire["b_to_a"])
    out = max(sum(way["out_frames"] for way in ways), 1)
    late = max(way["late"] / max(way["out_frames"], 1) for way in ways)
    own = sum(way[key] for way in ways
              for key in ("missed", "overflowed", "no_frame", "refused"))
    if late > LATE_SHARE:
        found.append(f"the wire was late with {late:.0%} of the frames")
    if own > DROP_SHARE * out:
        found.append(f"the wire itself dropped {own:,} frames")
    if tap_dropped > DROP_SHARE * out:
        found.append(f"a TAP's queue dropped {tap_dropped:,} frames")
    return found


# ---- judging ----

@dataclasses.dataclass
class Judged:
    """What a row says: result is PASS, MISS, FULL, "" without a goal, or "not
    measured"."""

    row: Row
    values: list
    result: str
    note: str = ""

    def median(self):
        return statistics.median(self.values)


def reached(row, value):
    return ((row.low is None or value >= row.low)
            and (row.high is None or value <= row.high))


def often(runs, test):
    """In half of the runs, or more."""
    return 2 * sum(map(bool, map(test, runs))) >= len(runs)


def judge(row, results, reasons):
    """results: {point: {turn: found}}; reasons: why a point has none."""
    ours, theirs = (results.get(point, {}) for point in row.points())
    turns = [turn for turn in ours if turn in theirs]
    values = [row.value(ours[turn], theirs[turn]) for turn in turns]
    values = [value for value in values if value is not None]
    if not values:
        why = [reasons[point] for point in row.points() if point in reasons]
        return Judged(row, [], "not measured", "; ".join(dict.fromkeys(why)))
    measured = [(point.stack, [runs[turn] for turn in turns])
                for point, runs in zip(row.points(), (ours, theirs))]
    full = [f"{stack}: " + next(run["limited"][0] for run in runs
                                if run["limited"])
            for stack, runs in measured
            if often(runs, lambda run: run["limited"])]
    if not row.goal():
        return Judged(row, values, "", "; ".join(full))
    if full:
        return Judged(row, values, "FULL", "; ".join(full))
    if reached(row, statistics.median(values)):
        return Judged(row, values, "PASS")
    # A stack that polls may leave nothing idle and yet have time to spare.
    busy = [f"{stack}: its cores were full" for stack, runs in measured
            if often(runs, lambda run: run["idle"] < IDLE_SHARE)]
    return Judged(row, values, "MISS", "; ".join(busy))
