#include "apps/proxy/backend_spec.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static const char *const states[] = {"ready", "drain", "down"};

#define KEYS                                                                   \
	"a key of weight=, maxconn=, backup, state=, check=, send=, sni= "     \
	"after the address"

const char *backend_state_name(enum backend_state state)
{
	return states[state];
}

int backend_state_parse(const char *text, enum backend_state *out)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(text, states[i]) == 0) {
			*out = (enum backend_state)i;
			return 0;
		}
	return -EINVAL;
}

/* Letters, digits and a few more, so that a name needs no quotes anywhere. */
static bool is_name(const char *text)
{
	size_t len = strlen(text);

	return len && len < BACKEND_NAME_MAX &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
			    "WXYZ0123456789._-") == len;
}

/*
 * RFC 1123 2.1: labels of letters, digits and hyphens. A last label without a
 * letter would be a malformed address.
 */
static bool is_host_name(const char *text)
{
	size_t len = strlen(text), label = 0;
	bool letter = false;

	if (len == 0 || len >= BACKEND_HOST_MAX)
		return false;
	for (const char *c = text; *c; c++) {
		bool ends = c[1] == '.' || c[1] == '\0';

		if (*c == '.') {
			if (label == 0)
				return false;
			label = 0;
			letter = letter && c[1] == '\0';
			continue;
		}
		if (!isalnum((unsigned char)*c) &&
		    (*c != '-' || label == 0 || ends))
			return false;
		letter |= isalpha((unsigned char)*c) != 0;
		if (++label > 63)
			return false;
	}
	return letter;
}

static const char *parse_host(const char *text, struct backend_spec *out)
{
	const char *colon = strrchr(text, ':');
	uint64_t port;

	if (opt_parse_endpoint(text, &out->end) == 0) {
		if (!opt_is_host(&out->end))
			return "the address of one host and a port";
		strcpy(out->host, out->end.host);
		out->port = out->end.port;
		return NULL;
	}
	if (!colon || opt_parse_number(colon + 1, 1, UINT16_MAX, &port) ||
	    (size_t)(colon - text) >= sizeof(out->host))
		return "the address of one host and a port";
	memcpy(out->host, text, (size_t)(colon - text));
	out->host[colon - text] = '\0';
	if (!is_host_name(out->host))
		return "the address or the name of one host and a port";
	out->by_name = true;
	out->port = (uint16_t)port;
	return NULL;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes \r, \n, \\ and \xHH; a comma is \x2c. False: too long or
 * malformed. */
static bool unescape(const char *text, char *out)
{
	size_t n = 0;

	for (; *text; text++) {
		int c = (unsigned char)*text;

		if (n == BACKEND_TEXT_MAX - 1)
			return false;
		if (c == '\\') {
			c = *++text;
			if (c == 'x') {
				int high = hex_value(text[1]);
				int low = high < 0 ? -1 : hex_value(text[2]);

				c = low < 0 ? 0 : high << 4 | low;
				text += 2;
			} else if (c == 'r' || c == 'n') {
				c = c == 'r' ? '\r' : '\n';
			} else if (c != '\\') {
				return false;
			}
			if (c == 0)
				return false;
		}
		out[n++] = (char)c;
	}
	out[n] = '\0';
	return n > 0;
}

static const char *parse_check(const char *value, struct backend_spec *out)
{
	const char *expected = "check=tcp, check=none, check=http:/PATH or "
			       "check=expect:TEXT";

	if (strcmp(value, "tcp") == 0) {
		out->check = BACKEND_CHECK_TCP;
	} else if (strcmp(value, "none") == 0) {
		out->check = BACKEND_CHECK_NONE;
	} else if (strncmp(value, "expect:", 7) == 0) {
		out->check = BACKEND_CHECK_EXPECT;
		if (!unescape(value + 7, out->expect))
			return expected;
	} else if (strcmp(value, "http") == 0 ||
		   strncmp(value, "http:/", 6) == 0) {
		const char *path = value[4] ? value + 5 : "/";

		out->check = BACKEND_CHECK_HTTP;
		if (strlen(path) >= sizeof(out->send))
			return expected;
		for (const char *c = path; *c; c++)
			if (!isgraph((unsigned char)*c))
				return expected;
		strcpy(out->send, path);
	} else {
		return expected;
	}
	return NULL;
}

static const char *parse_sni(const char *value, struct backend_spec *out)
{
	const char *expected = "sni=NAME, sni=*.NAME or several with | between "
			       "two";
	const char *at = value;

	if (strlen(value) >= sizeof(out->sni))
		return expected;
	for (size_t i = 0; i <= strlen(value); i++)
		out->sni[i] = (char)tolower((unsigned char)value[i]);
	while (at) {
		const char *end = strchr(at, '|');
		char name[BACKEND_SNI_MAX];
		size_t len = end ? (size_t)(end - at) : strlen(at);

		memcpy(name, at, len);
		name[len] = '\0';
		if (!is_host_name(strncmp(name, "*.", 2) ? name : name + 2))
			return expected;
		at = end ? end + 1 : NULL;
	}
	return NULL;
}

/* value NULL: there is none. */
static const char *parse_key(const char *key, const char *value,
			     struct backend_spec *out)
{
	uint64_t n;

	if (strcmp(key, "backup") == 0 && !value) {
		out->backup = true;
		return NULL;
	}
	if (!value)
		return KEYS;
	if (strcmp(key, "weight") == 0) {
		if (opt_parse_number(value, 1, BACKEND_WEIGHT, &n))
			return "weight=1 to weight=256";
		out->weight = (unsigned)n;
		return NULL;
	}
	if (strcmp(key, "maxconn") == 0) {
		if (opt_parse_number(value, 0, 2000000, &n))
			return "maxconn=0 (no bound) to maxconn=2000000";
		out->maxconn = (unsigned)n;
		return NULL;
	}
	if (strcmp(key, "state") == 0)
		return backend_state_parse(value, &out->state)
			       ? "state=ready, state=drain or state=down"
			       : NULL;
	if (strcmp(key, "check") == 0)
		return parse_check(value, out);
	if (strcmp(key, "send") == 0)
		return unescape(value, out->send) ? NULL
						  : "send= and 1 to 127 bytes";
	if (strcmp(key, "sni") == 0)
		return parse_sni(value, out);
	return KEYS;
}

/* The first word: [NAME=]HOST:PORT. */
static const char *parse_first(char *word, struct backend_spec *out)
{
	char *equals = strchr(word, '=');

	if (equals) {
		*equals = '\0';
		if (!is_name(word))
			return "a name of letters, digits, '.', '_' and '-' "
			       "before '=', 63 of them at most";
		strcpy(out->name, word);
		return parse_host(equals + 1, out);
	}
	/* An address that is short enough is its own name. */
	if (strlen(word) >= BACKEND_NAME_MAX)
		return "NAME=HOST:PORT for a host this long";
	strcpy(out->name, word);
	return parse_host(word, out);
}

const char *backend_spec_parse(const char *text, struct backend_spec *out)
{
	char copy[1024], *next = copy;
	const char *wrong;

	*out = (struct backend_spec){.weight = 1};
	if (strlen(text) >= sizeof(copy))
		return "less than 1024 bytes";
	strcpy(copy, text);
	wrong = parse_first(strsep(&next, ","), out);
	while (!wrong && next) {
		char *key = strsep(&next, ","), *value = strchr(key, '=');

		if (value)
			*value++ = '\0';
		wrong = parse_key(key, value, out);
	}
	if (!wrong && out->send[0] && out->check != BACKEND_CHECK_HTTP &&
	    out->check != BACKEND_CHECK_EXPECT)
		wrong = "check=expect:TEXT beside send=";
	return wrong;
}

/* Matches one pattern of `len` bytes against a name. */
static unsigned matches(const char *pattern, size_t len, const char *name,
			size_t name_len)
{
	/* The star stands for one label or more. */
	if (len > 2 && pattern[0] == '*')
		return name_len > len - 1 && memcmp(name + name_len - (len - 1),
						    pattern + 1, len - 1) == 0
			       ? (unsigned)len
			       : 0;
	return name_len == len && memcmp(name, pattern, len) == 0
		       ? BACKEND_SNI_MAX
		       : 0;
}

void backend_spec_authority(const struct backend_spec *spec, unsigned port,
			    char out[BACKEND_AUTHORITY_MAX])
{
	int len = (int)strcspn(spec->host, "%");
	bool v6 = strchr(spec->host, ':') != NULL;
	int n = snprintf(out, BACKEND_AUTHORITY_MAX, v6 ? "[%.*s]" : "%.*s",
			 len, spec->host);

	if (port != 80)
		snprintf(out + n, BACKEND_AUTHORITY_MAX - (size_t)n, ":%u",
			 port);
}

unsigned backend_spec_serves(const struct backend_spec *spec, const char *name)
{
	const char *at = spec->sni[0] ? spec->sni : NULL;
	size_t name_len = strlen(name);
	unsigned best = 0;

	while (at) {
		const char *end = strchr(at, '|');
		size_t len = end ? (size_t)(end - at) : strlen(at);
		unsigned well = matches(at, len, name, name_len);

		if (well > best)
			best = well;
		at = end ? end + 1 : NULL;
	}
	return best;
}
