# Run by gdb: step through switches and judge every unwind.
import gdb

gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set disable-randomization off")
gdb.execute("break coro_resume_pair")
gdb.execute("run")

LAST = ("main", "ctx_entry", "ctx_entry_pad", "coro_enter",
        "coro_enter_pad")
bad = steps = switches = 0
inside = None
for _ in range(600):
    names = []
    frame = gdb.newest_frame()
    while frame is not None and len(names) < 40:
        names.append(frame.name())
        last, why = frame, frame.unwind_stop_reason()
        frame = frame.older()
    known = names[-1] is not None and (
        names[-1] in LAST or names[-1].startswith("ctx_")
        or names[-1].startswith("__libc_start") or names[-1] == "_start")
    if not known or why not in (gdb.FRAME_UNWIND_OUTERMOST,
                                gdb.FRAME_UNWIND_NO_REASON,
                                gdb.FRAME_UNWIND_UNAVAILABLE):
        bad += 1
        print("BAD at %s: %s" % (gdb.selected_frame().pc(), names))
    now = "ctx_entry" in names or "coro_enter" in names or "child_body" in names
    switches += inside is not None and now != inside
    inside = now
    steps += 1
    gdb.execute("stepi", to_string=True)
print("%d steps, %d switches, %d bad" % (steps, switches, bad))
if bad == 0 and switches >= 4:
    print("SWITCH-SEEN")
