/*
 * The access log of an appliance on coronet: line_log.h with the stack's clock
 * and log. It is reopened together with the file of --log-to.
 */
#pragma once

#include "apps/common/line_log.h"

struct net_opts;

/*
 * Opens the log of --access-log for NET_MAX_SHARDS shards, before a stack is
 * open, as the user of --user; where NULL: *out becomes NULL. Returns 0, or
 * -EINVAL after a line on standard error.
 */
int line_log_start(const struct line_log_kind *kind, struct net_opts *net,
		   const char *where, unsigned form, struct line_log **out);

/* Writes what is left and closes the log, when no shard runs. NULL is ignored.
 */
void line_log_stop(struct line_log *log);
