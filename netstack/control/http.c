/*
 * The part of HTTP/1.1 (RFC 9112) that a scraper needs: one request per
 * connection, GET or HEAD without a body, a response with its length, close.
 *
 * libmicrohttpd was considered: its timeout restarts with each byte, so that a
 * few slow clients could hold all its connections for hours, and it brings a
 * TLS library into every program.
 */
#include "netstack/control/control_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *format_answer(size_t *len, bool head, const char *status,
			   const char *type, const char *body)
{
	char *text;
	int n = asprintf(&text,
			 "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: "
			 "%zu\r\nCache-Control: no-store\r\nConnection: "
			 "close\r\n%s\r\n%s",
			 status, type, strlen(body),
			 strncmp(status, "405", 3) == 0 ? "Allow: GET, HEAD\r\n"
							: "",
			 head ? "" : body);

	if (n < 0)
		return NULL;
	*len = (size_t)n;
	return text;
}

#define TEXT	"text/plain; charset=utf-8"
#define METRICS "text/plain; version=0.0.4; charset=utf-8"

static char *format_refusal(size_t *len, const char *status, const char *why)
{
	return format_answer(len, false, status, TEXT, why);
}

static char *format_metrics(size_t *len, bool head)
{
	char *page = net_metrics_page(), *text;

	if (!page)
		return format_refusal(len, "503 Service Unavailable",
				      "no memory for the page\n");
	text = format_answer(len, head, "200 OK", METRICS, page);
	free(page);
	return text;
}

static char *format_health(size_t *len, bool head)
{
	char line[256] = "";
	bool well = net_health(line, sizeof(line) - 1);

	strcat(line, "\n");
	return format_answer(len, head,
			     well ? "200 OK" : "503 Service Unavailable", TEXT,
			     well ? "ok\n" : line);
}

/* Returns the path without query; NULL: the line is no request. */
static char *parse_line(char *line, char **method)
{
	char *target = strchr(line, ' '), *version;

	if (!target)
		return NULL;
	*target++ = '\0';
	version = strchr(target, ' ');
	if (!version || strncmp(version + 1, "HTTP/1.", 7) != 0 ||
	    *target != '/')
		return NULL;
	*version = '\0';
	target[strcspn(target, "?")] = '\0';
	*method = line;
	return target;
}

static char *answer_line(char *line, size_t *len)
{
	char *method, *path = parse_line(line, &method);
	bool head;

	if (!path)
		return format_refusal(len, "400 Bad Request",
				      "expected a request of HTTP/1.1\n");
	head = strcmp(method, "HEAD") == 0;
	if (!head && strcmp(method, "GET") != 0)
		return format_refusal(len, "405 Method Not Allowed",
				      "expected GET or HEAD\n");
	if (strcmp(path, "/metrics") == 0)
		return format_metrics(len, head);
	if (strcmp(path, "/health") == 0 || strcmp(path, "/healthz") == 0)
		return format_health(len, head);
	if (strcmp(path, "/") == 0)
		return format_answer(
			len, head, "200 OK", TEXT,
			"coronet " CORONET_VERSION
			": metrics for Prometheus are at /metrics, whether the "
			"program serves is at /health\n");
	return format_answer(len, head, "404 Not Found", TEXT,
			     "there are only /metrics and /health\n");
}

char *net_http_answer(const char *request, size_t request_len, size_t *len)
{
	char line[512];
	const char *end = memmem(request, request_len, "\r\n\r\n", 4);
	size_t n = strcspn(request, "\r\n");

	if (!end && request_len < NET_HTTP_MAX_INPUT)
		return NULL;
	if (!end || n >= sizeof(line))
		return format_refusal(len,
				      "431 Request Header Fields Too Large",
				      "the request is too long\n");
	memcpy(line, request, n);
	line[n] = '\0';
	return answer_line(line, len);
}
