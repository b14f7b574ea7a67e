/*
 * Sends commands of the control socket from another thread, while this one, the
 * shard's, makes rounds.
 */
#pragma once

#include <stdint.h>

#include <cjson/cJSON.h>

/*
 * Returns the answer to a client's request "/COMMAND[,PARAMETERS]", the metrics
 * page for "page", or the response to a request of HTTP; the caller frees it.
 * Calls each(n), unless NULL,
 * before the nth round.
 */
char *asked_text(uint64_t client, const char *request,
		 void (*each)(unsigned round));

/* The same while this thread blocks: the shard makes no round. */
char *asked_in_vain(const char *request);

/*
 * Returns the answer's member with the command's name; the caller deletes it.
 */
cJSON *asked(uint64_t client, const char *request);
