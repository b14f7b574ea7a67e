"""The points of a report.json, by table, path and connections."""

from tables import format_short, spread

# In the order of tables, with the colours of plots, which the colour-blind can distinguish.
PATHS = {"memif": ("coronet over memif", "#0072b2"),
         "loopback": ("epoll on loopback", "#d55e00"),
         "uring": ("io_uring on loopback", "#cc79a7"),
         "tap": ("coronet over TAP", "#56b4e9"),
         "kerneltap": ("epoll over TAP", "#e69f00"),
         "uringtap": ("io_uring over TAP", "#882255")}
KERNELS = ("loopback", "uring", "kerneltap", "uringtap")
SATURATED = 0.97  # share of its core above which the server was the limit
AT_LEAST = "≥ "


def request_rate(run):
    return run["requests_per_s"]


def run_gbit(run):
    return run["bytes_per_s"] * 8e-9


def percentile(key):
    return lambda run: run["latency_us"][key]


def held_kib(run):
    """Returns the server's memory of its connections."""
    return run["server_kib"] - run["none_kib"]


def limited(path, run):
    """Whether the load was the limit and not the server."""
    # A poller's core is always busy: only the kernel's server shows its load.
    return run.get("limited") and not (path in KERNELS
                                       and (run.get("server_cpu") or 0) >= SATURATED)


class Points:
    def __init__(self, found):
        self.found = found
        self.by = {(p["table"], p["path"], p["conns"]): p for p in found["points"]}

    def runs(self, *key):
        return self.by[key]["runs"] if key in self.by else []

    def measured(self, table, path):
        """(connections, runs) of every point that has any, in order."""
        return sorted((p["conns"], p["runs"]) for p in self.found["points"]
                      if (p["table"], p["path"]) == (table, path) and p["runs"])

    def cell(self, *key, value=request_rate, form=format_short):
        """Returns a table's cell for a point."""
        if key not in self.by:
            return ""
        runs = self.runs(*key)
        if not runs:
            return "failed" if (self.by[key]["reason"] or "").startswith("failed") else "-"
        bound = any(limited(key[1], run) for run in runs)
        return (AT_LEAST if bound else "") + spread(list(map(value, runs)), form)

    def ratios(self, a, b, value=request_rate):
        """Returns the ratios of two points turn by turn, so that both saw the same machine."""
        return [value(x) / value(y) for x, y in zip(self.runs(*a), self.runs(*b)) if value(y)]

    def conns(self, table):
        return sorted({conns for name, _, conns in self.by if name == table})

    def paths(self, table):
        return [path for path in PATHS if any(key[:2] == (table, path) for key in self.by)]
