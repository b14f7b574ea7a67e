/*
 * Commands of the control socket, asked from a thread of their own while this
 * one, the shard's, makes rounds.
 */
#pragma once

#include <stdint.h>

#include <cjson/cJSON.h>

/*
 * The answer to a request, "/COMMAND[,PARAMETERS]", of one of the socket's
 * clients, or the page of metrics to "page"; the caller's to free. each(n), if
 * there is one, is called before the nth round.
 */
char *asked_text(uint64_t client, const char *request,
		 void (*each)(unsigned round));

/* The same while this thread waits: the shard makes no round. */
char *asked_in_vain(const char *request);

/* The answer's member that bears the command's name; the caller's to delete. */
cJSON *asked(uint64_t client, const char *request);
