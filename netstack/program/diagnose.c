/*
 * Telling a person what went wrong: whose a coroutine is, and calls that a
 * program must not make.
 */
#include "netstack/program/log.h"
#include "netstack/net_priv.h"

#include <dlfcn.h>
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

const char *net_handler_name(const struct net_conn *conn)
{
	const struct net_listener *listener =
		net_listener_find(&conn->pcb.local_ip, conn->client_port);

	return listener && listener->handler ? listener->handler_name
					     : "no handler";
}

/* ---- whose a coroutine is ---- */

/*
 * A word that is the address of a connection in use. The first that is found is
 * the coroutine's own: a handler's caller has it in its frame.
 */
__attribute__((no_sanitize("address"))) static bool
recognize(uintptr_t word, char *text, size_t len)
{
	const struct net_conn *conn = (const struct net_conn *)word;
	char peer[NET_ADDR_TEXT_MAX];
	struct net_addr addr;

	if (!net_mem_is_conn(conn) || !(conn->owned || conn->served))
		return false;
	addr = net_peer_addr(conn);
	net_addr_format(&addr, peer, sizeof(peer));
	if (conn->served)
		snprintf(text, len, "handler %s, peer %s",
			 net_handler_name(conn), peer);
	else
		snprintf(text, len, "peer %s", peer);
	return true;
}

/* ---- calls from other threads ---- */

__thread bool net_here;

__attribute__((cold, noinline)) void net_die_foreign(const char *call)
{
	if (!net_the.sched)
		return; /* nothing is open: the call says so itself */
	net_log("coronet: %s() was called from a thread that isn't the stack's "
		"(coro_wake_post() may be called from anywhere: let what it "
		"wakes make the call)",
		call);
	net_log_flush();
	abort();
}

__attribute__((cold, noinline)) void net_die_shared(const char *what)
{
	net_log("coronet: %s lies on a shared stack, where it dangles while "
		"its coroutine is switched out; use the heap, static storage "
		"or a private stack",
		what);
	net_log_flush();
	abort();
}

void net_diagnose_open(void)
{
	net_here = true;
	coro_sched_recognize(net_the.sched, recognize);
}

void net_diagnose_close(void)
{
	net_here = false;
}
