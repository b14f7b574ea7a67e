/*
 * A client of the control socket: rte_telemetry's protocol, version 2.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

struct ctl_client {
	int fd;
	const char *path;
	char version[64]; /* of the program that answers */
	size_t max_bytes; /* of an answer */
	char error[512];  /* one line when a call failed */
};

/*
 * Connects and reads the greeting. path: borrowed. Returns 0, or -1 with
 * client->error set, which says what to do.
 */
int ctl_open(struct ctl_client *client, const char *path);
void ctl_close(struct ctl_client *client);

/*
 * Sends "/name,params" (params may be ""). Returns the answer's value, which
 * the caller passes to cJSON_Delete(), or NULL with client->error set, possibly
 * to the program's own error.
 */
cJSON *ctl_ask(struct ctl_client *client, const char *name, const char *params);
