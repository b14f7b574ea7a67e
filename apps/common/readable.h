/*
 * Warns of files that the program has read as root, and cannot read again after
 * it has become another user (--user).
 */
#pragma once

#include <coronet/net_stack.h>

/*
 * Logs a warning if opts->user is set and may not read a file or directory.
 * path NULL: nothing. It blocks: call it before anything is served.
 */
void readable_or_warn(const struct net_opts *opts, const char *option,
		      const char *path);
