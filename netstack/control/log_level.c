/*
 * Commands on the log: sets levels of components, including DPDK's types, and
 * reopens its file.
 */
#include "netstack/control/control_priv.h"
#include "netstack/program/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void add_type(const char *type, unsigned level, void *arg)
{
	const char *name = net_log_level_name(level);

	cJSON_AddStringToObject(arg, type, name ? name : "?");
}

/* "PATTERN=LEVEL" sets levels; the answer has all of them in any case. */
static cJSON *log_levels(const char *params)
{
	char reason[300];
	cJSON *to;

	if (params &&
	    net_log_set_levels(params, true, reason, sizeof(reason)) < 0)
		return net_control_error("%s", reason);
	to = cJSON_CreateObject();
	glue_log_types(add_type, to);
	return to;
}

/* Waits for the writing thread: a client that moved the file may go on then. */
static cJSON *reopen_log(const char *params)
{
	char where[512];
	int err = net_log_reopen_wait();
	cJSON *to;

	net_log_where(where, sizeof(where));
	if (err == -ETIMEDOUT)
		return net_control_error("cannot reopen '%s': no response "
					 "within 1 s",
					 where);
	if (err < 0)
		return net_control_error("'%s': %s; the old file is kept",
					 where, strerror(-err));
	to = cJSON_CreateObject();
	cJSON_AddStringToObject(to, "log", where);
	net_control_number(to, "dropped_lines", net_log_dropped());
	return to;
}

const struct net_command net_log_commands[] = {
	{"/coronet/log.level",
	 "Levels of the log by component. Parameter: [PATTERN=]LEVEL[,...] "
	 "sets them",
	 log_levels},
	{"/coronet/log.reopen", "Reopens the log's file, after a rotation",
	 reopen_log},
	{0},
};
