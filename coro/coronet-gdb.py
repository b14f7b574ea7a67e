# coronet-gdb.py - gdb commands for programs that use coronet's coroutines.
#
#   (gdb) source coronet-gdb.py
#   (gdb) coro list              name, state and waiting place of each
#   (gdb) coro bt ADDRESS|NAME   one's stack
#   (gdb) coro bt all            everyone's
#
# A coroutine's frames are read where its bytes are: on its stack if it is the
# stack's occupant, else in its save buffer. They are then unwound by the saved
# return addresses, which works live and on core files, and changes nothing in
# the process. What a call that is over left in a frame looks like one that goes
# on: no function is missing, but one may be too many. Needs coronet's debug
# information (struct coro), which every build has.
#
# Of core files the kernel's are whole; gdb's own generate-core-file leaves out
# mappings with guard pages, and with them the stacks that are in place.
import gdb

STATES = {}


def u64(v):
    return int(v) & (2**64 - 1)


def sched():
    s = gdb.parse_and_eval("coro_tls_sched")
    if u64(s) == 0:
        raise gdb.GdbError("this thread has no coroutine scheduler")
    return s


def state_names():
    if not STATES:
        for f in gdb.lookup_type("enum coro_state").fields():
            STATES[f.enumval] = f.name.replace("CORO_ST_", "").lower()
    return STATES


def coroutines(s):
    names = state_names()
    chunk = s["chunks"]
    while u64(chunk) != 0:
        coros = chunk.dereference()["coros"]
        lo, hi = coros.type.range()
        for i in range(lo, hi + 1):
            co = coros[i]
            if names[int(co["ctx"]["state"])] != "dead":
                yield co
        chunk = chunk["next"]


def name_of(s, co):
    return s["names"][int(co["ctx"]["name"])]["name"].string()


class Stack:
    """The bytes [sp, top) of a coroutine that is switched out."""

    def __init__(self, co):
        st = co["ctx"]["stack"].dereference()
        self.sp = u64(co["ctx"]["sp"])
        self.top = u64(st["top"])
        low = self.sp & ~63
        base = low
        if u64(st["occupant"]) != u64(co.address):
            base = u64(co["ctx"]["save"])
        mem = gdb.selected_inferior().read_memory(base, self.top - low)
        self.bytes = bytes(mem)
        self.low = low

    def word(self, addr):
        if addr < self.low or addr + 8 > self.top:
            raise IndexError(addr)
        off = addr - self.low
        return int.from_bytes(self.bytes[off:off + 8], "little")


def describe(pc):
    """The function pc returns into, or None if it is no code address."""
    if not 4096 < pc < 2**47:
        return None
    block = gdb.block_for_pc(pc - 1)
    names = []  # what is inlined there, innermost first; then the function
    while block is not None and not block.is_static:
        if block.function is not None:
            names.append(block.function.name)
        block = block.superblock
    if names:
        text = names.pop()
        if names:
            text += " (inlined: %s)" % ", ".join(names)
    else:
        text = gdb.execute("info symbol %#x" % (pc - 1), to_string=True)
        if text.startswith("No symbol"):
            return None
        text = text.split(" + ")[0].split(" in section")[0]
    sal = gdb.find_pc_line(pc - 1)
    if sal.symtab is not None and sal.line:
        text += " at %s:%d" % (sal.symtab.filename, sal.line)
    return text


def is_call_return(pc):
    """Does a call instruction end at pc?"""
    try:
        code = bytes(gdb.selected_inferior().read_memory(pc - 7, 7))
    except gdb.MemoryError:
        return False
    if code[2] == 0xE8:  # call rel32
        return True
    for n in (2, 3, 4, 6, 7):  # call r/m64
        ins = code[7 - n:]
        if ins[0] in (0x41, 0x40, 0x49) and n > 2:
            ins = ins[1:]
        if ins[0] == 0xFF and (ins[1] >> 3) & 7 == 2:
            return True
    return False


def backtrace(co):
    """Return addresses from the parked frame up to the entry."""
    stack = Stack(co)
    pcs = [stack.word(stack.sp + 56)]
    addr = stack.sp + 64
    while addr + 8 <= stack.top and len(pcs) < 200:
        pc = stack.word(addr)
        if describe(pc) is not None and is_call_return(pc):
            pcs.append(pc)
        addr += 8
    return pcs


def print_one(s, co):
    state = state_names()[int(co["ctx"]["state"])]
    where = ""
    if state in ("parked", "waiting") and u64(co["where"]) != 0:
        where = co["where"].string()
    print("%#x  %-20s %-10s %s" % (u64(co.address), name_of(s, co), state,
                                   where))


def print_bt(co):
    state = state_names()[int(co["ctx"]["state"])]
    if state == "running":
        print("    runs: use bt")
        return
    for i, pc in enumerate(backtrace(co)):
        text = describe(pc)
        if text is None:
            print("    its stack is not in this core file")
            return
        print("    #%-2d %#x in %s" % (i, pc, text))


class Coro(gdb.Command):
    """coro list | coro bt ADDRESS|NAME|all"""

    def __init__(self):
        super().__init__("coro", gdb.COMMAND_STACK)

    def invoke(self, arg, from_tty):
        args = gdb.string_to_argv(arg)
        s = sched()
        if args == ["list"]:
            for co in coroutines(s):
                print_one(s, co)
        elif len(args) == 2 and args[0] == "bt":
            for co in coroutines(s):
                if args[1] in ("all", name_of(s, co),
                               "%#x" % u64(co.address)):
                    print_one(s, co)
                    print_bt(co)
        else:
            raise gdb.GdbError(self.__doc__)


Coro()
