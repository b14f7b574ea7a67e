/*
 * coronet-ctl capture: the running program writes the file, in whatever folder
 * it is, so a path that is relative to ours is made absolute here.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "apps/ctl/coronet_ctl_priv.h"
#include "apps/ctl/ctl_print.h"

#define LOOK_NS	    20000000L
#define LOOKS	    500u /* for a capture to end: ten seconds */
#define REQUEST_MAX 1024u

static int refuse_capture(const char *file, const char *why)
{
	fprintf(stderr, "coronet-ctl: capture: '%s': %s\n", file, why);
	return 2;
}

/* Adds to text; false: there is no room. */
static bool append_text(char *text, const char *more)
{
	size_t used = strlen(text), len = strlen(more);

	if (used + len >= REQUEST_MAX)
		return false;
	memcpy(text + used, more, len + 1);
	return true;
}

/* Writes "FILE,packets=N,filter=..."; returns 0 or an exit status. */
static int write_request(const struct ctl *ctl, char *out)
{
	const char *file = ctl->words[1];
	char folder[PATH_MAX] = "";
	bool fits = true;

	if (!*file)
		return refuse_capture(file, "expected a file, as in a.pcapng");
	if (*file != '/' && !getcwd(folder, sizeof(folder)))
		return refuse_capture(
			file, "the current directory has no path; use an "
			      "absolute path");
	if (strchr(folder, ',') || strchr(file, ','))
		return refuse_capture(file,
				      "the path must not contain a comma");
	*out = '\0';
	if (*folder)
		fits = append_text(out, folder) && append_text(out, "/");
	fits = fits && append_text(out, file);
	if (*ctl->limits)
		fits = fits && append_text(out, ",") &&
		       append_text(out, ctl->limits);
	for (unsigned i = 2; i < ctl->n_words; i++)
		fits = fits && append_text(out, i == 2 ? ",filter=" : " ") &&
		       append_text(out, ctl->words[i]);
	return fits ? 0
		    : refuse_capture(file,
				     "the path and the filter are too long");
}

static const char *text_of(const cJSON *answer, const char *key)
{
	const char *text =
		cJSON_GetStringValue(cJSON_GetObjectItem(answer, key));

	return text ? text : "?";
}

int ctl_run_capture(struct ctl *ctl, const struct command *command)
{
	char request[REQUEST_MAX];
	int status = write_request(ctl, request);
	cJSON *answer;

	if (status)
		return status;
	answer = ctl_ask(&ctl->client, "/coronet/capture.start", request);
	if (!answer)
		return ctl_fail(ctl);
	if (ctl->json)
		ctl_print_json(answer);
	else
		printf("capturing to %s; coronet-ctl capture stop ends it\n",
		       text_of(answer, "file"));
	cJSON_Delete(answer);
	return 0;
}

/* Waits until the file is complete and returns the answer; NULL: ctl->client
 * has the reason. */
static cJSON *await_end(struct ctl *ctl)
{
	static const struct timespec pause = {.tv_nsec = LOOK_NS};
	cJSON *answer = ctl_ask(&ctl->client, "/coronet/capture.stop", "");

	for (unsigned i = 0; answer && i < LOOKS; i++) {
		if (strcmp(text_of(answer, "state"), "runs") != 0)
			return answer;
		cJSON_Delete(answer);
		nanosleep(&pause, NULL);
		answer = ctl_ask(&ctl->client, "/coronet/capture", "");
	}
	if (answer)
		snprintf(ctl->client.error, sizeof(ctl->client.error),
			 "capture: %s is still being written; coronet-ctl "
			 "capture status shows when it is complete",
			 text_of(answer, "file"));
	cJSON_Delete(answer);
	return NULL;
}

int ctl_run_capture_stop(struct ctl *ctl, const struct command *command)
{
	return ctl_print_answer(ctl, await_end(ctl), NULL);
}
