/*
 * Messages about errors of a program: which connection a coroutine serves, and
 * which calls a program must not make.
 */
#include "netstack/program/log.h"
#include "netstack/program/program.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- handlers ---- */

const char *net_code_name(uintptr_t code, char *text, size_t len)
{
	const char *file, *name;
	uintptr_t from;
	Dl_info info;

	if (!dladdr((void *)code, &info) || !info.dli_fname) {
		snprintf(text, len, "%#lx", (unsigned long)code);
		return text;
	}
	file = strrchr(info.dli_fname, '/');
	file = file ? file + 1 : info.dli_fname;
	name = info.dli_sname;
	from = code - (uintptr_t)info.dli_saddr;
	if (name && from)
		snprintf(text, len, "%s+%#lx in %s+%#lx", name,
			 (unsigned long)from, file,
			 (unsigned long)(code - (uintptr_t)info.dli_fbase));
	else
		snprintf(text, len, "%s%s%s+%#lx", name ? name : "",
			 name ? " in " : "", file,
			 (unsigned long)(code - (uintptr_t)info.dli_fbase));
	return text;
}

/* ---- calls from other threads ---- */

static _Atomic unsigned stacks;
static _Thread_local const struct net_stack *observed;

const struct net_stack *net_observed(void)
{
	return observed ? observed : net_here();
}

void net_observe(const struct net_stack *stack)
{
	observed = stack;
}

cold void net_die_foreign(const char *call)
{
	if (!net_stacks_open())
		return; /* nothing is open: the call says so itself */
	net_log_line(
		NET_LOG_CRITICAL,
		"coronet: %s() was called from a thread that isn't its shard's "
		"(net_post() may be called from anywhere: let what it runs "
		"make the call)",
		call);
	net_log_flush();
	abort();
}

cold void net_die_unless_traced(const struct net_conn *conn, const char *call)
{
	if (!net_here()->sched || !conn ||
	    (conn->shard & NET_SHARD_NUMBER) != net_here()->shard)
		net_die_foreign(call);
}

cold void net_die_shared(const char *what)
{
	net_log_line(
		NET_LOG_CRITICAL,
		"coronet: %s lies on a shared stack, where it dangles while "
		"its coroutine is switched out; use the heap, static storage "
		"or a private stack",
		what);
	net_log_flush();
	abort();
}

void net_stacks_opened(void)
{
	atomic_fetch_add(&stacks, 1);
}

void net_stacks_closed(void)
{
	atomic_fetch_sub(&stacks, 1);
}

unsigned net_stacks_open(void)
{
	return atomic_load(&stacks);
}
