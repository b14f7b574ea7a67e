/* Joins an access log to the stack's own log. */
#include "apps/common/coronet_line_log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <coronet/net.h>
#include <coronet/net_user.h>

static void reopen_log(void *log)
{
	line_log_reopen(log);
}

static void log_error(const char *line)
{
	net_log_at(NET_LOG_ERROR, "%s", line);
}

int line_log_start(const struct line_log_kind *kind, struct net_opts *net,
		   const char *where, unsigned form, struct line_log **out)
{
	int err;

	*out = NULL;
	if (!where)
		return 0;
	err = net_user_files_begin(net);
	if (err < 0) {
		fprintf(stderr, "%s: %s\n", kind->program, net->error);
		return err;
	}
	err = line_log_open(kind, where, form, NET_MAX_SHARDS, net_clock_ns,
			    log_error, out);
	net_user_files_end();
	if (err == 0)
		err = net_log_join(reopen_log, *out);
	if (err == 0)
		return 0;
	fprintf(stderr,
		"%s: --access-log '%s': %s: expected " LINE_LOG_EXPECTED "\n",
		kind->program, where, strerror(-err));
	return -EINVAL;
}

void line_log_stop(struct line_log *log)
{
	if (log)
		net_log_leave(reopen_log, log);
	line_log_close(log);
}
