/* Formats the sessions' records. */
#include "apps/proxy/access_log.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

static const char *const end_names[ACCESS_ENDS] = {
	[ACCESS_DONE] = "done",
	[ACCESS_CLIENT_RESET] = "client-reset",
	[ACCESS_SERVER_RESET] = "server-reset",
	[ACCESS_IDLE_TIMEOUT] = "idle-timeout",
	[ACCESS_CLIENT_TIMEOUT] = "client-timeout",
	[ACCESS_SERVER_TIMEOUT] = "server-timeout",
	[ACCESS_HALF_CLOSED_TIMEOUT] = "half-closed-timeout",
	[ACCESS_CONNECT_FAILED] = "connect-failed",
	[ACCESS_NO_BACKEND] = "no-backend",
	[ACCESS_NO_RETRY] = "no-retry",
	[ACCESS_QUEUE_FULL] = "queue-full",
	[ACCESS_QUEUE_TIMEOUT] = "queue-timeout",
	[ACCESS_DENIED] = "denied",
	[ACCESS_RATE] = "rate",
	[ACCESS_LISTENER_RATE] = "listener-rate",
	[ACCESS_BAD_HEADER] = "bad-header",
	[ACCESS_HEADER_TIMEOUT] = "header-timeout",
	[ACCESS_BAD_HELLO] = "bad-hello",
	[ACCESS_TLS_FAILED] = "tls-failed",
	[ACCESS_HELLO_TIMEOUT] = "hello-timeout",
	[ACCESS_DISPLACED] = "displaced",
	[ACCESS_STOPPED] = "stopped",
	[ACCESS_NO_MEMORY] = "no-memory",
};

const char *access_end_name(enum access_end end)
{
	return end_names[end];
}

/* ---- lines ---- */

/* Empty: there is none. */
static const char *format_addr(uint8_t family, const uint8_t *ip, uint16_t port,
			       char *out, size_t len)
{
	char text[INET6_ADDRSTRLEN];

	if (family != 4 && family != 6)
		return "";
	inet_ntop(family == 4 ? AF_INET : AF_INET6, ip, text, sizeof(text));
	snprintf(out, len, family == 4 ? "%s:%u" : "[%s]:%u", text, port);
	return out;
}

static const char *or_none(const char *text)
{
	return *text ? text : "-";
}

/*
 * A name that the client chose, as a word: %XX in place of a blank and of what
 * is not ASCII (RFC 3986 2.1). out has three bytes for each of the text.
 */
static const char *format_name(const char *text, char *out)
{
	char *at = out;

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c <= ' ' || c >= 0x7f || c == '%')
			at += sprintf(at, "%%%02X", c);
		else
			*at++ = (char)c;
	}
	*at = '\0';
	return out;
}

static const char *resumed_name(const struct access_record *r)
{
	if (!*r->tls.version)
		return "-";
	return r->tls.resumed ? "yes" : "no";
}

static size_t format_text(const struct access_record *r, int64_t wall_ns,
			  char *line)
{
	char time[LINE_LOG_TIME_BYTES], client[64], listener[64],
		connect[32] = "-";
	char name[3 * sizeof(r->tls.client)];
	int n;

	line_log_time(wall_ns, time);
	if (r->connect_ns >= 0)
		snprintf(connect, sizeof(connect), "%.3f",
			 (double)r->connect_ns / 1e6);
	n = snprintf(
		line, ACCESS_LOG_LINE_MAX,
		"%s client=%s listener=%s backend=%s connect_ms=%s "
		"queue_ms=%.3f to=%llu from=%llu duration_ms=%.3f "
		"retries=%u sni=%s tls=%s cipher=%s resumed=%s tls_client=%s "
		"id=%s end=%s\n",
		time,
		or_none(format_addr(r->addrs.family, r->addrs.src,
				    r->addrs.src_port, client, sizeof(client))),
		or_none(format_addr(r->addrs.family, r->addrs.dst,
				    r->addrs.dst_port, listener,
				    sizeof(listener))),
		or_none(r->backend), connect, (double)r->queue_ns / 1e6,
		(unsigned long long)r->bytes_to,
		(unsigned long long)r->bytes_from,
		(double)(r->end_ns - r->begin_ns) / 1e6, r->retries,
		or_none(r->server_name), or_none(r->tls.version),
		or_none(r->tls.cipher), resumed_name(r),
		or_none(format_name(r->tls.client, name)), or_none(r->id),
		end_names[r->end]);
	return (size_t)n;
}

/* Whether a session of TLS was resumed, or null without TLS. */
static void add_resumed(cJSON *to, const struct access_record *r)
{
	if (*r->tls.version)
		cJSON_AddBoolToObject(to, "resumed", r->tls.resumed);
	else
		cJSON_AddNullToObject(to, "resumed");
}

/* A text, or null if there is none. */
static void add_text(cJSON *to, const char *name, const char *text)
{
	if (*text)
		cJSON_AddStringToObject(to, name, text);
	else
		cJSON_AddNullToObject(to, name);
}

/* All digits, unlike a double. */
static void add_number(cJSON *to, const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	cJSON_AddRawToObject(to, name, text);
}

/* Milliseconds; null if ns is less than 0. */
static void add_ms(cJSON *to, const char *name, int64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", (double)ns / 1e6);
	if (ns >= 0)
		cJSON_AddRawToObject(to, name, text);
	else
		cJSON_AddNullToObject(to, name);
}

static size_t print_json(cJSON *object, char *line, size_t room)
{
	size_t len = 0;

	if (object && cJSON_PrintPreallocated(object, line, (int)room - 1, 0)) {
		len = strlen(line);
		line[len++] = '\n';
	}
	cJSON_Delete(object);
	return len;
}

static size_t format_json(const struct access_record *r, int64_t wall_ns,
			  char *line)
{
	cJSON *to = cJSON_CreateObject();
	char text[LINE_LOG_TIME_BYTES];

	line_log_time(wall_ns, text);
	add_text(to, "time", text);
	add_text(to, "client",
		 format_addr(r->addrs.family, r->addrs.src, r->addrs.src_port,
			     text, sizeof(text)));
	add_text(to, "listener",
		 format_addr(r->addrs.family, r->addrs.dst, r->addrs.dst_port,
			     text, sizeof(text)));
	add_text(to, "backend", r->backend);
	add_ms(to, "connect_ms", r->connect_ns);
	add_ms(to, "queue_ms", r->queue_ns);
	add_number(to, "to", r->bytes_to);
	add_number(to, "from", r->bytes_from);
	add_ms(to, "duration_ms", r->end_ns - r->begin_ns);
	add_number(to, "retries", r->retries);
	add_text(to, "sni", r->server_name);
	add_text(to, "tls", r->tls.version);
	add_text(to, "cipher", r->tls.cipher);
	add_resumed(to, r);
	add_text(to, "tls_client", r->tls.client);
	add_text(to, "id", r->id);
	add_text(to, "end", end_names[r->end]);
	return print_json(to, line, ACCESS_LOG_LINE_MAX);
}

size_t access_log_format(const struct access_record *record,
			 enum access_form form, int64_t wall_ns, char *line)
{
	return form == ACCESS_JSON ? format_json(record, wall_ns, line)
				   : format_text(record, wall_ns, line);
}

static size_t format_record(const void *record, unsigned form, int64_t wall_ns,
			    char *line)
{
	return access_log_format(record, (enum access_form)form, wall_ns, line);
}

static bool is_json(unsigned form)
{
	return form == ACCESS_JSON;
}

const struct line_log_kind access_log_kind = {
	.program = "coronet-proxy",
	.ring_bytes =
		LINE_LOG_RING(ACCESS_LOG_RING, sizeof(struct access_record)),
	.line_max = ACCESS_LOG_LINE_MAX,
	.format = format_record,
	.is_json = is_json,
};

void access_log_add(struct line_log *log, unsigned shard,
		    const struct access_record *record)
{
	struct access_record *copy =
		log ? line_log_begin(log, shard, sizeof(*copy)) : NULL;

	if (!copy)
		return;
	*copy = *record;
	line_log_end(log, shard, record->end_ns);
}
