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
 * Connects and reads the greeting. Returns 0, or -1 with client->error set: it
 * says what to do.
 */
int ctl_open(struct ctl_client *client, const char *path);
void ctl_close(struct ctl_client *client);

/*
 * What the program answers to "/name,params" (params may be ""): the value, to
 * be given to cJSON_Delete(). NULL: client->error says why, be it that the
 * program said so.
 */
cJSON *ctl_ask(struct ctl_client *client, const char *name, const char *params);
