/* A client of the control socket: rte_telemetry's protocol, version 2. */
#include "apps/ctl/ctl_client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_S    10
#define GREETING_MAX 1024
#define ANSWER_MAX   (16u << 20)
#define REQUEST_MAX  1024

__attribute__((format(printf, 2, 3))) static int
report_failure(struct ctl_client *client, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(client->error, sizeof(client->error), format, ap);
	va_end(ap);
	return -1;
}

static int report_refused(struct ctl_client *client, int err)
{
	const char *path = client->path;
	struct stat st;

	switch (err) {
	case ENOENT:
		return report_failure(
			client,
			"%s: no such socket; start the program with "
			"--control %s, or name its socket with --control",
			path, path);
	case EACCES:
	case EPERM:
		return report_failure(
			client,
			"%s: permission denied; only the program's user and "
			"root may use its socket",
			path);
	case ECONNREFUSED:
		if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
			return report_failure(
				client, "%s: this file is not a socket", path);
		return report_failure(client,
				      "%s: nobody listens; the program has "
				      "ended without removing its socket",
				      path);
	case EPROTOTYPE:
		return report_failure(
			client,
			"%s: this socket belongs to another kind of program",
			path);
	default:
		return report_failure(client, "%s: %s", path, strerror(err));
	}
}

/* Receives a message, NUL-terminated, to be freed; NULL: none came. */
static char *receive_json(struct ctl_client *client, size_t most)
{
	char *text = malloc(most + 1);
	ssize_t n;

	if (!text) {
		report_failure(client, "out of memory");
		return NULL;
	}
	do
		n = recv(client->fd, text, most, MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n > 0 && (size_t)n <= most) {
		text[n] = '\0';
		return text;
	}
	if (n < 0 && errno == EAGAIN)
		report_failure(client, "%s: no answer for %d s", client->path,
			       TIMEOUT_S);
	else if (n > 0)
		report_failure(
			client,
			"%s: an answer of %zd bytes, more than announced",
			client->path, n);
	else
		report_failure(client,
			       "%s: the program has closed the connection",
			       client->path);
	free(text);
	return NULL;
}

static int read_greeting(struct ctl_client *client)
{
	char *text = receive_json(client, GREETING_MAX);
	const cJSON *version, *bytes;
	cJSON *greeting;
	int rc = 0;

	if (!text)
		return -1;
	greeting = cJSON_Parse(text);
	free(text);
	version = cJSON_GetObjectItem(greeting, "version");
	bytes = cJSON_GetObjectItem(greeting, "max_output_len");
	if (!cJSON_IsString(version) || !cJSON_IsNumber(bytes) ||
	    bytes->valuedouble < GREETING_MAX ||
	    bytes->valuedouble > ANSWER_MAX) {
		rc = report_failure(client,
				    "%s: the program there does not speak "
				    "DPDK's telemetry protocol",
				    client->path);
	} else if (strncmp(version->valuestring, "coronet ", 8) != 0) {
		rc = report_failure(
			client,
			"%s: the program there is '%s', not coronet; name "
			"coronet's socket with --control",
			client->path, version->valuestring);
	} else {
		snprintf(client->version, sizeof(client->version), "%s",
			 version->valuestring);
		client->max_bytes = (size_t)bytes->valuedouble;
	}
	cJSON_Delete(greeting);
	return rc;
}

int ctl_open(struct ctl_client *client, const char *path)
{
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	*client = (struct ctl_client){.path = path};
	if (strlen(path) >= sizeof(addr.sun_path))
		return report_failure(
			client,
			"%s: the path of a socket has at most %zu bytes", path,
			sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, path);
	client->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (client->fd < 0)
		return report_refused(client, errno);
	setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout,
		   sizeof(timeout));
	setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout,
		   sizeof(timeout));
	if (connect(client->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		report_refused(client, errno);
	else if (read_greeting(client) == 0)
		return 0;
	close(client->fd);
	client->fd = -1;
	return -1;
}

void ctl_close(struct ctl_client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

/* Takes a member out of the answer; NULL: there is none, or it is an error. */
static cJSON *unwrap_answer(struct ctl_client *client, const char *name,
			    cJSON *answer)
{
	cJSON *value = cJSON_DetachItemFromObjectCaseSensitive(answer, name);
	const cJSON *error = cJSON_GetObjectItem(value, "error");

	if (value && cJSON_IsString(error))
		report_failure(client, "%s", error->valuestring);
	else if (cJSON_IsNull(value) && strncmp(name, "/proxy/", 7) == 0)
		report_failure(client,
			       "the program (%s) does not know %s: is it "
			       "coronet-proxy?",
			       client->version, name);
	else if (cJSON_IsNull(value))
		report_failure(client,
			       "the program (%s) does not know %s; this "
			       "coronet-ctl belongs to coronet %s",
			       client->version, name, CORONET_VERSION);
	else if (!value)
		report_failure(client, "%s: the answer is not for %s",
			       client->path, name);
	else
		return value;
	cJSON_Delete(value);
	return NULL;
}

cJSON *ctl_ask(struct ctl_client *client, const char *name, const char *params)
{
	char request[REQUEST_MAX], *text;
	int n = snprintf(request, sizeof(request), "%s%s%s", name,
			 *params ? "," : "", params);
	cJSON *answer, *value;

	if (n < 0 || (size_t)n >= sizeof(request)) {
		report_failure(client, "the request is longer than %d bytes",
			       REQUEST_MAX - 1);
		return NULL;
	}
	if (send(client->fd, request, (size_t)n, MSG_NOSIGNAL) < 0) {
		report_failure(client, "%s: %s", client->path, strerror(errno));
		return NULL;
	}
	text = receive_json(client, client->max_bytes);
	if (!text)
		return NULL;
	answer = cJSON_Parse(text);
	free(text);
	if (!answer) {
		report_failure(client, "%s: the answer is not JSON",
			       client->path);
		return NULL;
	}
	value = unwrap_answer(client, name, answer);
	cJSON_Delete(answer);
	return value;
}
