/* Finds what of a request is logged, and formats its line. */
#include "apps/httpd/http_log.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define MINUTE_S 60
#define CUT	 "..."

enum { REQUEST, REFERER, AGENT, HOST, TEXTS };

/* A part of the head. */
struct part {
	const char *at;
	size_t len;
};

/* In a ring; the texts follow each other. */
struct record {
	int64_t duration_ns;
	uint64_t bytes;
	unsigned number;
	uint16_t status;
	uint8_t end;
	bool has_tls;
	struct net_addr client, listener;
	struct http_log_tls tls; /* empty: unknown */
	struct {
		uint16_t len;
		bool cut;
	} texts[TEXTS];
	char bytes_of_texts[];
};

static const uint16_t text_max[TEXTS] = {
	[REQUEST] = HTTP_LOG_REQUEST_MAX,
	[REFERER] = HTTP_LOG_REFERER_MAX,
	[AGENT] = HTTP_LOG_AGENT_MAX,
	[HOST] = HTTP_LOG_HOST_MAX,
};
/* JSON has six bytes for one; names, numbers and addresses take the rest. */
static_assert(6 * (HTTP_LOG_REQUEST_MAX + HTTP_LOG_REFERER_MAX +
		   HTTP_LOG_AGENT_MAX + HTTP_LOG_HOST_MAX) +
			      1024 <
		      HTTP_LOG_LINE_MAX,
	      "each line has room");

static const char *const end_names[HTTP_LOG_ENDS] = {
	[HTTP_LOG_DONE] = "done",
	[HTTP_LOG_CLIENT_CLOSED] = "client-closed",
	[HTTP_LOG_SEND_TIMEOUT] = "send-timeout",
	[HTTP_LOG_STOPPED] = "stopped",
	[HTTP_LOG_NO_MEMORY] = "no-memory",
};

/* ---- reading a head ---- */

/* Takes a line from the head, without its end. */
static struct part take_line(struct part *head)
{
	const char *lf = memchr(head->at, '\n', head->len);
	struct part line = {head->at, lf ? (size_t)(lf - head->at) : head->len};
	size_t taken = line.len + (lf != NULL);

	head->at += taken;
	head->len -= taken;
	if (lf && line.len && line.at[line.len - 1] == '\r')
		line.len--;
	return line;
}

static struct part trim_space(struct part p)
{
	while (p.len && (*p.at == ' ' || *p.at == '\t')) {
		p.at++;
		p.len--;
	}
	while (p.len && (p.at[p.len - 1] == ' ' || p.at[p.len - 1] == '\t'))
		p.len--;
	return p;
}

/* An empty line before the request is ignored (RFC 9112 2.2). */
static struct part skip_empty_line(const char *head, size_t len)
{
	if (len >= 2 && memcmp(head, "\r\n", 2) == 0)
		return (struct part){head + 2, len - 2};
	return (struct part){head, len};
}

bool http_log_has_request(const char *head, size_t len)
{
	struct part rest = skip_empty_line(head, len);

	return take_line(&rest).len > 0;
}

/* Notes a field's value, if it is one of those that are logged, and the first.
 */
static void take_field(struct part line, struct part texts[TEXTS])
{
	static const struct {
		const char *name;
		size_t len;
		unsigned text;
	} fields[] = {{"referer:", 8, REFERER},
		      {"user-agent:", 11, AGENT},
		      {"host:", 5, HOST}};

	for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		size_t len = fields[i].len;

		if (line.len < len || line.at[len - 1] != ':' ||
		    strncasecmp(line.at, fields[i].name, len) != 0)
			continue;
		if (!texts[fields[i].text].at)
			texts[fields[i].text] = trim_space(
				(struct part){line.at + len, line.len - len});
		return;
	}
}

/* Finds the logged texts of a head, which may be anything. */
static void find_texts(const char *head, size_t len, struct part texts[TEXTS])
{
	struct part rest = skip_empty_line(head, len);

	texts[REQUEST] = take_line(&rest);
	if (texts[REQUEST].len == 0)
		return;
	while (rest.len) {
		struct part line = take_line(&rest);

		if (line.len == 0)
			return;
		take_field(line, texts);
	}
}

static void fill_record(struct record *r, const struct http_log_entry *entry,
			const struct part texts[TEXTS])
{
	char *to = r->bytes_of_texts;

	*r = (struct record){
		.duration_ns = entry->end_ns - entry->begin_ns,
		.bytes = entry->bytes,
		.number = entry->number,
		.status = (uint16_t)entry->status,
		.end = (uint8_t)entry->end,
		.has_tls = entry->has_tls,
		.client = entry->client,
		.listener = entry->listener,
	};
	if (entry->tls)
		r->tls = *entry->tls;
	for (unsigned i = 0; i < TEXTS; i++) {
		size_t len = texts[i].len;

		r->texts[i].cut = len > text_max[i];
		if (r->texts[i].cut)
			len = text_max[i];
		r->texts[i].len = (uint16_t)len;
		if (len)
			memcpy(to, texts[i].at, len);
		to += len;
	}
}

void http_log_add(struct line_log *log, unsigned shard,
		  const struct http_log_entry *entry)
{
	struct part texts[TEXTS] = {{0}};
	size_t size = sizeof(struct record);
	struct record *r;

	find_texts(entry->head, entry->head_len, texts);
	for (unsigned i = 0; i < TEXTS; i++)
		size += texts[i].len < text_max[i] ? texts[i].len : text_max[i];
	r = line_log_begin(log, shard, size);
	if (!r)
		return;
	fill_record(r, entry, texts);
	line_log_end(log, shard, entry->end_ns);
}

/* ---- lines, on the log's thread ---- */

static char *put_plain(char *at, const char *text)
{
	size_t n = strlen(text);

	memcpy(at, text, n);
	return at + n;
}

static char *put_byte(char *at, unsigned char byte, bool json)
{
	static const char digits[] = "0123456789ABCDEF";

	if (json && (byte == '"' || byte == '\\')) {
		*at++ = '\\';
		*at++ = (char)byte;
		return at;
	}
	at = put_plain(at, json ? "\\u00" : "\\x");
	*at++ = digits[byte >> 4];
	*at++ = digits[byte & 15];
	return at;
}

/* Writes a client's bytes so that they end neither the line nor the string. */
static char *put_bytes(char *at, const char *bytes, size_t n, bool json)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)bytes[i];

		if (c < ' ' || c >= 0x7f || c == '"' || c == '\\')
			at = put_byte(at, c, json);
		else
			*at++ = (char)c;
	}
	return at;
}

/* Writes one of the record's texts; none: what stands for it. */
static char *put_text(char *at, const struct record *r, unsigned which,
		      bool json)
{
	const char *bytes = r->bytes_of_texts;

	for (unsigned i = 0; i < which; i++)
		bytes += r->texts[i].len;
	if (r->texts[which].len == 0)
		return put_plain(at, json ? "null" : "\"-\"");
	*at++ = '"';
	at = put_bytes(at, bytes, r->texts[which].len, json);
	if (r->texts[which].cut)
		at = put_plain(at, CUT);
	*at++ = '"';
	return at;
}

static const char *format_ip(const struct net_addr *addr,
			     char text[INET6_ADDRSTRLEN])
{
	if (addr->family != 4 && addr->family != 6)
		return "-";
	return inet_ntop(addr->family == 4 ? AF_INET : AF_INET6, addr->ip, text,
			 INET6_ADDRSTRLEN);
}

/* Local time and its difference from UTC: "10/Oct/2000:13:55:36 -0700". */
static char *put_local_time(char *at, int64_t wall_ns)
{
	static const char months[][4] = {"Jan", "Feb", "Mar", "Apr",
					 "May", "Jun", "Jul", "Aug",
					 "Sep", "Oct", "Nov", "Dec"};
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	long east;
	struct tm tm;

	localtime_r(&seconds, &tm);
	east = tm.tm_gmtoff < 0 ? -tm.tm_gmtoff : tm.tm_gmtoff;
	return at + sprintf(at, "%02d/%s/%d:%02d:%02d:%02d %c%02ld%02ld",
			    tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900,
			    tm.tm_hour, tm.tm_min, tm.tm_sec,
			    tm.tm_gmtoff < 0 ? '-' : '+',
			    east / (MINUTE_S * 60), east / MINUTE_S % 60);
}

static char *put_common(char *at, const struct record *r, int64_t begin_ns)
{
	char ip[INET6_ADDRSTRLEN];

	at += sprintf(at, "%s - - [", format_ip(&r->client, ip));
	at = put_local_time(at, begin_ns);
	at = put_plain(at, "] ");
	at = put_text(at, r, REQUEST, false);
	return at +
	       sprintf(at, " %u %llu", r->status, (unsigned long long)r->bytes);
}

static char *put_combined(char *at, const struct record *r, int64_t begin_ns)
{
	at = put_common(at, r, begin_ns);
	*at++ = ' ';
	at = put_text(at, r, REFERER, false);
	*at++ = ' ';
	return put_text(at, r, AGENT, false);
}

static char *put_address(char *at, const char *name,
			 const struct net_addr *addr)
{
	char ip[INET6_ADDRSTRLEN];

	return at + sprintf(at,
			    addr->family == 6 ? "\"%s\":\"[%s]:%u\","
					      : "\"%s\":\"%s:%u\",",
			    name, format_ip(addr, ip), addr->port);
}

/* A word of the program or of OpenSSL, or null. */
static char *put_word(char *at, const char *name, const char *word)
{
	return at + (*word ? sprintf(at, ",\"%s\":\"%s\"", name, word)
			   : sprintf(at, ",\"%s\":null", name));
}

static char *put_json(char *at, const struct record *r, int64_t begin_ns)
{
	char time[LINE_LOG_TIME_BYTES];

	line_log_time(begin_ns, time);
	at += sprintf(at, "{\"time\":\"%s\",", time);
	at = put_address(at, "client", &r->client);
	at = put_address(at, "listener", &r->listener);
	at = put_plain(at, "\"request\":");
	at = put_text(at, r, REQUEST, true);
	at += sprintf(at,
		      ",\"status\":%u,\"bytes\":%llu,\"duration_ms\":%.3f,"
		      "\"host\":",
		      r->status, (unsigned long long)r->bytes,
		      (double)r->duration_ns / 1e6);
	at = put_text(at, r, HOST, true);
	at = put_plain(at, ",\"referer\":");
	at = put_text(at, r, REFERER, true);
	at = put_plain(at, ",\"user_agent\":");
	at = put_text(at, r, AGENT, true);
	at = put_word(at, "scheme", r->has_tls ? "https" : "http");
	at = put_word(at, "tls", r->tls.version);
	at = put_word(at, "cipher", r->tls.cipher);
	at += sprintf(at, ",\"connection_requests\":%u", r->number);
	at = put_word(at, "end", end_names[r->end]);
	return put_plain(at, "}");
}

static size_t format_record(const void *record, unsigned form, int64_t wall_ns,
			    char *line)
{
	const struct record *r = record;
	int64_t begin_ns = wall_ns - r->duration_ns;
	char *at = line;

	switch ((enum http_log_form)form) {
	case HTTP_LOG_COMMON:
		at = put_common(line, r, begin_ns);
		break;
	case HTTP_LOG_COMBINED:
		at = put_combined(line, r, begin_ns);
		break;
	case HTTP_LOG_JSON:
		at = put_json(line, r, begin_ns);
		break;
	}
	*at++ = '\n';
	return (size_t)(at - line);
}

static bool is_json(unsigned form)
{
	return form == HTTP_LOG_JSON;
}

const struct line_log_kind http_log_kind = {
	.program = "coronet-httpd",
	.ring_bytes = HTTP_LOG_RING_BYTES,
	.line_max = HTTP_LOG_LINE_MAX,
	.format = format_record,
	.is_json = is_json,
};
