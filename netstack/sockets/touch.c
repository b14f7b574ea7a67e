/*
 * Finds memory in the arguments of a call that cannot be accessed.
 *
 * The kernel would return EFAULT. This check needs no system call: one
 * instruction touches each page, and if it faults, the handler of SIGSEGV and
 * SIGBUS (run_signals.c) continues where the check fails. Pages after the first
 * are only read, since another thread may write there. In a long range only the
 * first 256 pages are checked.
 */
#include "netstack/sockets/sockets_priv.h"

#include <stdint.h>
#include <ucontext.h>

#define PAGE_BYTES 4096u
#define PAGES_MAX  256u

/* An instruction that may fault, and where to go on then. */
struct fixup {
	int32_t instruction, fault; /* from the field's own address */
};

extern __attribute__((visibility("hidden")))
const struct fixup __start_net_fixups[];
extern __attribute__((visibility("hidden")))
const struct fixup __stop_net_fixups[];

#define FIXUP                                                                  \
	".pushsection net_fixups, \"a\", @progbits\n"                          \
	".balign 4\n"                                                          \
	".long 1b - .\n"                                                       \
	".long %l[fault] - .\n"                                                \
	".popsection\n"

static bool can_read(uintptr_t at)
{
	__asm__ goto("1: testb $0, (%0)\n" FIXUP : : "r"(at) : "cc" : fault);
	return true;
fault:
	return false;
}

static bool can_write(uintptr_t at)
{
	__asm__ goto("1: orb $0, (%0)\n" FIXUP
		     :
		     : "r"(at)
		     : "cc", "memory"
		     : fault);
	return true;
fault:
	return false;
}

size_t net_touch(uintptr_t memory, size_t bytes, bool write)
{
	uintptr_t at = memory, last = at + bytes - 1;

	if (bytes == 0)
		return 0;
	if (last < at || !(write ? can_write(at) : can_read(at)))
		return 0;
	if (bytes > PAGES_MAX * PAGE_BYTES)
		last = at + PAGES_MAX * PAGE_BYTES;
	at += PAGE_BYTES - at % PAGE_BYTES;
	for (; at <= last; at += PAGE_BYTES)
		if (!can_read(at))
			return at - memory;
	return bytes;
}

static uintptr_t resolve_fixup(const int32_t *field)
{
	return (uintptr_t)field + (uintptr_t)(intptr_t)*field;
}

bool net_touch_failed(void *context)
{
	greg_t *rip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	const struct fixup *f = __start_net_fixups;

	while (f < __stop_net_fixups &&
	       resolve_fixup(&f->instruction) != (size_t)*rip)
		f++;
	if (f == __stop_net_fixups)
		return false;
	*rip = (greg_t)resolve_fixup(&f->fault);
	return true;
}
