#include "apps/common/readable.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void readable_or_warn(const struct net_opts *opts, const char *option,
		      const char *path)
{
	if (opts->user && path && access(path, R_OK) < 0)
		net_log_at(NET_LOG_WARNING,
			   "--user %s: %s '%s' cannot be read again when it "
			   "has changed: %s",
			   opts->user, option, path, strerror(errno));
}
