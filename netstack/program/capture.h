/*
 * The option --capture.
 */
#pragma once

#include <stddef.h>

#include <coronet/net_stack.h>

/*
 * Reads "FILE[,KEY=VALUE...]": bytes=SIZE, packets=N, snap=BYTES, and filter=,
 * which takes all that follows it. text is the caller's copy: it is modified,
 * and *out points into it. Returns 0, or -EINVAL with the reason in err, to
 * which the caller prepends the option's name.
 */
int net_capture_parse(char *text, struct net_capture *out, char *err,
		      size_t err_len);

/*
 * Starts the capture of opts->capture, if any, before anything is received;
 * with opts->check, only looks whether that could succeed. Returns 0, or -errno
 * with opts->error set.
 */
int net_capture_open(struct net_opts *opts);
