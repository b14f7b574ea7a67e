/*
 * Sets the exception of a link, when the links are opened and while the program
 * runs.
 *
 * The shards that use an exception and its maker each have a reference to it.
 * So a shard that is late to release it only keeps its interface open, and
 * nothing waits for that shard.
 */
#include "netstack/link/exception.h"
#include "netstack/link/leased.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/coro_io.h>

/* Written while shard 0 opens and closes, and by the control thread between. */
static struct {
	unsigned n;
	struct link {
		struct about {
			const uint8_t *mac; /* borrowed until the port closes */
			unsigned mtu, n_addrs;
			struct glue_kernel_addr addrs[NET_MAX_ADDRS];
		} about;
		struct net_exception *now; /* NULL: none */
	} all[NET_MAX_LINKS];
} links;

/* ---- the interface ---- */

static void put_tap(struct net_exception_tap *tap)
{
	if (atomic_fetch_sub(&tap->users, 1) != 1)
		return;
	glue_kernel_tap_close(tap->fd);
	free(tap);
}

static int open_tap(const struct about *link,
		    const struct net_exception_rule *rule,
		    struct net_exception_tap **out, char *err, size_t err_len)
{
	const struct glue_kernel_tap_conf conf = {
		.name = rule->name,
		.mac = link->mac,
		.mtu = link->mtu,
		.addrs = link->addrs,
		.n_addrs = rule->addr_off ? 0 : link->n_addrs,
	};
	struct net_exception_tap *tap = calloc(1, sizeof(*tap));
	int rc;

	if (!tap)
		return -ENOMEM;
	atomic_init(&tap->users, 1);
	tap->addr_off = rule->addr_off;
	strcpy(tap->name, rule->name);
	rc = glue_kernel_tap_open(&conf, &tap->fd, err, err_len);
	if (rc < 0)
		free(tap);
	else
		*out = tap;
	return rc;
}

/* Uses the TAP of the rule before, or opens another one. */
static int find_tap(const struct link *link, struct net_exception *exception,
		    char *err, size_t err_len)
{
	const struct net_exception_rule *rule = &exception->rule;
	const struct net_exception *before = link->now;

	if (!before || strcmp(before->tap->name, rule->name) != 0)
		return open_tap(&link->about, rule, &exception->tap, err,
				err_len);
	if (before->tap->addr_off != rule->addr_off) {
		snprintf(err, err_len,
			 "--exception '%s': %s is in use with addr=%s; end "
			 "that first, with off",
			 exception->text, rule->name,
			 rule->addr_off ? "on" : "off");
		return -EINVAL;
	}
	exception->tap = before->tap;
	atomic_fetch_add(&exception->tap->users, 1);
	return 0;
}

/* ---- one exception ---- */

int net_exception_make(unsigned number, const char *text,
		       struct net_exception **out, char *err, size_t err_len)
{
	const struct link *link = &links.all[number];
	struct net_exception *exception = calloc(1, sizeof(*exception));
	int rc;

	if (!exception) {
		snprintf(err, err_len, "--exception '%s': no memory", text);
		return -ENOMEM;
	}
	atomic_init(&exception->users, 1);
	rc = net_exception_parse(text, &exception->rule, err, err_len);
	if (rc == 0) {
		strcpy(exception->text, text);
		rc = find_tap(link, exception, err, err_len);
	}
	if (rc < 0)
		free(exception);
	else
		*out = exception;
	return rc;
}

struct net_exception *net_exception_get(struct net_exception *exception)
{
	if (exception)
		atomic_fetch_add(&exception->users, 1);
	return exception;
}

void net_exception_put(struct net_exception *exception)
{
	if (!exception || atomic_fetch_sub(&exception->users, 1) != 1)
		return;
	put_tap(exception->tap);
	free(exception);
}

/* Has a descriptor, or -1 for none, wake the loop's sleep, or no longer. */
static void watch_fd(struct net_stack *stack, int fd, bool wakes)
{
	if (fd >= 0 && stack->sched && stack->woken &&
	    coro_sched_wake_on(stack->sched, fd, wakes) < 0 && wakes)
		stack->woken = false; /* it naps, and looks */
}

void net_exception_use(unsigned link, struct net_exception *exception)
{
	struct net_stack *stack = net_here();
	struct net_port *port = &stack->ports[link];
	struct net_exception *before = port->exception;
	int was = net_exception_fd(port), now;
	bool any = false;

	port->exception = net_exception_get(exception);
	glue_port_keep_refused(port->glue, exception != NULL);
	for (unsigned i = 0; i < stack->n_ports; i++)
		any |= stack->ports[i].exception != NULL;
	stack->shares_ports = any;
	stack->kernel_takes = any ? net_exception_stranger : NULL;
	now = net_exception_fd(port);
	if (was != now) {
		watch_fd(stack, was, false);
		watch_fd(stack, now, true);
	}
	net_exception_put(before);
}

/* ---- links ---- */

static void describe_link(struct link *link, unsigned number,
			  const struct net_opts *opts)
{
	struct about *about = &link->about;

	about->mac = glue_port_mac(net_here()->ports[number].glue);
	about->mtu = opts->mtu;
	about->n_addrs = 0;
	for (unsigned i = 0; i < opts->n_addrs; i++) {
		struct glue_kernel_addr *addr = &about->addrs[about->n_addrs];

		if (opts->addr_links[i] != number ||
		    net_addr_is_leased(&opts->addrs[i]))
			continue;
		addr->family = opts->addrs[i].family;
		addr->prefix_len = opts->addrs[i].prefix_len;
		memcpy(addr->ip, opts->addrs[i].ip, sizeof(addr->ip));
		about->n_addrs++;
	}
}

int net_exception_open(unsigned link, struct net_opts *opts)
{
	int err = 0;

	if (net_here()->shard == 0) {
		describe_link(&links.all[link], link, opts);
		links.n = link + 1;
		if (opts->exceptions[link])
			err = net_exception_make(link, opts->exceptions[link],
						 &links.all[link].now,
						 opts->error,
						 sizeof(opts->error));
	}
	if (err == 0 && opts->exceptions[link])
		net_exception_use(link, links.all[link].now);
	return err;
}

void net_exception_close(void)
{
	for (unsigned i = 0; i < net_here()->n_ports; i++)
		net_exception_use(i, NULL);
	if (net_here()->shard != 0)
		return;
	for (unsigned i = 0; i < links.n; i++)
		net_exception_settle(i, NULL);
	links.n = 0;
}

unsigned net_exception_links(void)
{
	return links.n;
}

struct net_exception *net_exception_now(unsigned link)
{
	return links.all[link].now;
}

void net_exception_settle(unsigned link, struct net_exception *exception)
{
	net_exception_put(links.all[link].now);
	links.all[link].now = exception;
}
