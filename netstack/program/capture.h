/*
 * The option --capture.
 */
#pragma once

#include <stddef.h>

#include <coronet/net_stack.h>

/*
 * Reads "FILE[,KEY=VALUE...]": bytes=SIZE, packets=N, snap=BYTES, and filter=,
 * which takes all that follows it. What out points to is in text, a copy of
 * the caller's that is written to. Returns 0, or -EINVAL with the reason in
 * err, before which the caller names the option.
 */
int net_capture_parse(char *text, struct net_capture *out, char *err,
		      size_t err_len);
