/*
 * --check: what is examined here instead of being opened. All other options are
 * checked by opening the program, on links in memory.
 */
#include "netstack/shard/shard.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "netstack/control/control.h"
#include "netstack/program/capture.h"
#include "netstack/program/exception_rule.h"
#include "netstack/program/privileges.h"

__attribute__((format(printf, 2, 3))) static int refuse(struct net_opts *opts,
							const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(opts->error, sizeof(opts->error), format, ap);
	va_end(ap);
	return -EINVAL;
}

static bool has_interface(const struct glue_link *link, const char *name)
{
	return (link->kind == GLUE_LINK_TAP ||
		link->kind == GLUE_LINK_AF_PACKET ||
		link->kind == GLUE_LINK_AF_XDP) &&
	       strcmp(link->name, name) == 0;
}

/* The interface of link i's exception is made, so nothing else may be it. */
static int check_exception(struct net_opts *opts, unsigned i)
{
	struct net_exception_rule rule, other;
	struct glue_link link;
	int err;

	if (!opts->exceptions[i])
		return 0;
	err = net_exception_parse(opts->exceptions[i], &rule, opts->error,
				  sizeof(opts->error));
	for (unsigned l = 0; err == 0 && l < opts->n_links; l++) {
		bool taken = false;

		err = glue_link_parse(opts->links[l], &link, opts->error,
				      sizeof(opts->error));
		if (err == 0 && l < i && opts->exceptions[l])
			taken = net_exception_parse(opts->exceptions[l], &other,
						    opts->error,
						    sizeof(opts->error)) == 0 &&
				strcmp(other.name, rule.name) == 0;
		if (err == 0 && (taken || has_interface(&link, rule.name)))
			err = refuse(opts,
				     "--exception '%s': --link '%s' uses the "
				     "interface %s; name another one",
				     opts->exceptions[i], opts->links[l],
				     rule.name);
	}
	return err;
}

/* Puts memory in place of all that the program would share with others. */
static void replace_links(struct net_opts *opts)
{
	static char names[NET_MAX_LINKS][24];

	for (unsigned i = 0; i < opts->n_links; i++) {
		snprintf(names[i], sizeof(names[i]), "ring:check%u", i);
		opts->links[i] = names[i];
		opts->exceptions[i] = NULL;
	}
	opts->control = "off";
	opts->lease_dir = "off";
	opts->capture = opts->log_to = opts->dpdk_prefix = NULL;
	opts->metrics.port = 0;
	opts->huge_off = opts->dad_off = true;
	opts->n_lcores = opts->n_eal_args = 0;
}

int net_check_replaced(struct net_opts *opts)
{
	struct glue_link link;
	int err = 0;

	for (unsigned i = 0; err == 0 && i < opts->n_links; i++)
		err = glue_link_parse(opts->links[i], &link, opts->error,
				      sizeof(opts->error));
	for (unsigned i = 0; err == 0 && i < opts->n_links; i++)
		err = check_exception(opts, i);
	if (err == 0)
		err = net_privileges_check(opts);
	if (err == 0 && opts->dpdk_prefix && opts->huge_off)
		err = refuse(
			opts,
			"--dpdk-prefix %s: other processes can attach only "
			"to hugepages, so it cannot be used with --huge "
			"off",
			opts->dpdk_prefix);
	if (err == 0)
		err = net_capture_open(opts);
	if (err == 0 &&
	    net_control_check(opts, opts->error, sizeof(opts->error)) < 0)
		err = -EINVAL;
	if (err == 0)
		replace_links(opts);
	return err;
}
