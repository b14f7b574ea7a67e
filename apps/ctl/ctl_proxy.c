/*
 * coronet-ctl's commands for coronet-proxy: backends, and reloads.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "apps/ctl/coronet_ctl_priv.h"
#include "apps/ctl/ctl_print.h"

#define LOOK_NS 20000000L
#define LOOKS	1500u /* for a reload to end: 30 seconds */

static const struct ctl_column columns[] = {
	{"BACKEND", "name", CTL_TEXT, -21},
	{"ADDRESS", "address", CTL_TEXT, -21},
	{"STATE", "state", CTL_TEXT, -5},
	{"HEALTH", "health", CTL_TEXT, -10},
	{"SESSIONS", "sessions", CTL_NUMBER, 8},
	{"MAXCONN", "maxconn", CTL_NUMBER, 7},
	{"WEIGHT", "weight", CTL_NUMBER, 6},
	{"RAMP%", "ramp_percent", CTL_NUMBER, 5},
	{"CONNECTS", "connects", CTL_NUMBER, 9},
	{"FAILED", "failed", CTL_NUMBER, 7},
	{"EJECTED", "ejections", CTL_NUMBER, 7},
	{"SENT", "sent_bytes", CTL_BYTES, 8},
	{"RECEIVED", "received_bytes", CTL_BYTES, 8},
	{"BACKUP", "backup", CTL_BOOL, -6},
	{0}};

int ctl_run_backends(struct ctl *ctl, const struct command *command)
{
	cJSON *answer = ctl_ask(&ctl->client, "/proxy/backends", "");
	const cJSON *row, *queue;

	if (!answer)
		return ctl_fail(ctl);
	if (ctl->json) {
		ctl_print_json(answer);
		cJSON_Delete(answer);
		return 0;
	}
	ctl_print_head(stdout, columns);
	cJSON_ArrayForEach(row, cJSON_GetObjectItem(answer, "backends"))
	{
		ctl_print_row(stdout, columns, row);
	}
	queue = cJSON_GetObjectItem(answer, "queue");
	printf("queue: %.0f waiting; in all, %.0f sessions have waited, %.0f "
	       "of them too long, and %.0f found the queue full\n",
	       ctl_number(queue, "waiting"), ctl_number(queue, "queued"),
	       ctl_number(queue, "timeouts"), ctl_number(queue, "refused"));
	cJSON_Delete(answer);
	return 0;
}

/* No backend has a comma in its name: the configuration refuses it. */
static int check_name(const struct ctl *ctl)
{
	if (*ctl->words[1] && !strchr(ctl->words[1], ','))
		return 0;
	fprintf(stderr,
		"coronet-ctl: backend '%s': expected a name as coronet-ctl "
		"backends lists them\n",
		ctl->words[1]);
	return 2;
}

static int check_words(const struct ctl *ctl)
{
	static const char *const states[] = {"drain", "ready", "down"};

	if (check_name(ctl))
		return 2;
	for (size_t i = 0; ctl->n_words == 3 && i < 3; i++)
		if (strcmp(ctl->words[2], states[i]) == 0)
			return 0;
	if (ctl->n_words == 2)
		return 0;
	fprintf(stderr,
		"coronet-ctl: backend %s: '%s': expected drain, ready or "
		"down\n",
		ctl->words[1], ctl->words[2]);
	return 2;
}

/* Says if a shard still has the list of before. */
static void print_pending(const cJSON *answer)
{
	if (cJSON_IsFalse(cJSON_GetObjectItem(answer, "applied")))
		printf("a shard has not applied it yet: a coroutine may keep "
		       "it (see the watchdog's lines in the log)\n");
}

/* Sends a request about one backend, whose row is the answer. */
static int ask_row(struct ctl *ctl, const char *command)
{
	char request[1024];
	cJSON *row;

	snprintf(request, sizeof(request), "%s%s%s", ctl->words[1],
		 ctl->n_words > 2 ? "," : "",
		 ctl->n_words > 2 ? ctl->words[2] : "");
	row = ctl_ask(&ctl->client, command, request);
	if (!row)
		return ctl_fail(ctl);
	if (ctl->json) {
		ctl_print_json(row);
	} else {
		ctl_print_head(stdout, columns);
		ctl_print_row(stdout, columns, row);
		print_pending(row);
	}
	cJSON_Delete(row);
	return 0;
}

int ctl_run_backend(struct ctl *ctl, const struct command *command)
{
	int status = check_words(ctl);

	return status ? status : ask_row(ctl, command->request);
}

int ctl_run_backend_add(struct ctl *ctl, const struct command *command)
{
	return ask_row(ctl, command->request);
}

int ctl_run_backend_weight(struct ctl *ctl, const struct command *command)
{
	int status = check_name(ctl);

	return status ? status : ask_row(ctl, command->request);
}

int ctl_run_backend_remove(struct ctl *ctl, const struct command *command)
{
	int status = check_name(ctl);
	cJSON *answer;

	if (status)
		return status;
	answer = ctl_ask(&ctl->client, command->request, ctl->words[1]);
	if (!answer)
		return ctl_fail(ctl);
	if (ctl->json) {
		ctl_print_json(answer);
	} else {
		printf("removed %s; %.0f sessions go on\n", ctl->words[1],
		       ctl_number(answer, "sessions"));
		print_pending(answer);
	}
	cJSON_Delete(answer);
	return 0;
}

/* Waits for a reload's result; NULL: ctl->client says why it is unknown. */
static cJSON *await_reload(struct ctl *ctl, double reading)
{
	static const struct timespec pause = {.tv_nsec = LOOK_NS};
	char params[32];

	snprintf(params, sizeof(params), "%.0f", reading);
	for (unsigned i = 0; i < LOOKS; i++) {
		cJSON *answer =
			ctl_ask(&ctl->client, "/proxy/reload.status", params);

		if (!answer ||
		    cJSON_IsTrue(cJSON_GetObjectItem(answer, "done")))
			return answer;
		cJSON_Delete(answer);
		nanosleep(&pause, NULL);
	}
	snprintf(ctl->client.error, sizeof(ctl->client.error),
		 "reload: the program still reads its configuration; its log "
		 "will show the result");
	return NULL;
}

int ctl_run_reload(struct ctl *ctl, const struct command *command)
{
	cJSON *answer = ctl_ask(&ctl->client, "/proxy/reload", "");
	double reading = ctl_number(answer, "number");
	const char *text;
	bool ok;

	if (!answer)
		return ctl_fail(ctl);
	cJSON_Delete(answer);
	answer = await_reload(ctl, reading);
	if (!answer)
		return ctl_fail(ctl);
	ok = cJSON_IsTrue(cJSON_GetObjectItem(answer, "ok"));
	text = cJSON_GetStringValue(cJSON_GetObjectItem(answer, "text"));
	if (!ok)
		fprintf(stderr, "coronet-ctl: reload: %s\n", text ? text : "?");
	else if (ctl->json)
		ctl_print_json(answer);
	else
		printf("reloaded: %s\n", text ? text : "?");
	cJSON_Delete(answer);
	return ok ? 0 : 1;
}
