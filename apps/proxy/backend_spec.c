/* Parses a backend as in --to: name, address and parameters. */
#include "apps/proxy/backend_spec.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define STATES "ready|drain|down"

const char *backend_state_name(enum backend_state state)
{
	static const char *const names[] = {"ready", "drain", "down"};

	return names[state];
}

int backend_state_parse(const char *text, enum backend_state *out)
{
	int i = opt_find_word(STATES, text);

	if (i < 0)
		return i;
	*out = (enum backend_state)i;
	return 0;
}

/* Letters, digits and a few more, so that a name needs no quotes anywhere. */
static bool is_name(const char *text)
{
	size_t len = strlen(text);

	return len && len < BACKEND_NAME_MAX &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV"
			    "WXYZ0123456789._-") == len;
}

static int parse_host(const char *text, struct backend_spec *out,
		      struct opt_error *error)
{
	if (host_parse(text, &out->end, out->host) < 0)
		return opt_expect(
			error,
			"the address or the name of one host and a port");
	out->by_name = out->host[0] != '\0';
	if (!out->by_name)
		strcpy(out->host, out->end.host);
	out->port = out->end.port;
	return 0;
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
static bool unescape_text(const char *text, char *out)
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

static int parse_check(const struct opt *opt, const char *value, void *base,
		       struct opt_error *error)
{
	struct backend_spec *out = base;
	const char *path = strlen(value) > 4 ? value + 5 : "/";
	static const enum backend_check plain[] = {
		BACKEND_CHECK_TCP, BACKEND_CHECK_UDP, BACKEND_CHECK_DNS,
		BACKEND_CHECK_NONE};
	int i = opt_find_word("tcp|udp|dns|none", value);

	if (i >= 0) {
		out->check = plain[i];
		return 0;
	}
	if (strncmp(value, "udp:", 4) == 0) {
		out->check = BACKEND_CHECK_UDP;
		return unescape_text(value + 4, out->expect) ? 0 : -EINVAL;
	}
	if (strncmp(value, "expect:", 7) == 0) {
		out->check = BACKEND_CHECK_EXPECT;
		return unescape_text(value + 7, out->expect) ? 0 : -EINVAL;
	}
	if (strcmp(value, "http") != 0 && strncmp(value, "http:/", 6) != 0)
		return -EINVAL;
	if (strlen(path) >= sizeof(out->path))
		return -EINVAL;
	for (const char *c = path; *c; c++)
		if (!isgraph((unsigned char)*c))
			return -EINVAL;
	out->check = BACKEND_CHECK_HTTP;
	strcpy(out->path, path);
	return 0;
}

static int parse_send(const struct opt *opt, const char *value, void *base,
		      struct opt_error *error)
{
	return unescape_text(value, ((struct backend_spec *)base)->send)
		       ? 0
		       : -EINVAL;
}

static int parse_sni(const struct opt *opt, const char *value, void *base,
		     struct opt_error *error)
{
	struct backend_spec *out = base;
	const char *at = value;

	if (strlen(value) >= sizeof(out->sni))
		return -EINVAL;
	for (size_t i = 0; i <= strlen(value); i++)
		out->sni[i] = (char)tolower((unsigned char)value[i]);
	while (at) {
		const char *end = strchr(at, '|');
		char name[BACKEND_SNI_MAX];
		size_t len = end ? (size_t)(end - at) : strlen(at);

		memcpy(name, at, len);
		name[len] = '\0';
		if (!host_is_name(strncmp(name, "*.", 2) ? name : name + 2))
			return -EINVAL;
		at = end ? end + 1 : NULL;
	}
	return 0;
}

static int parse_tls_name(const struct opt *opt, const char *value, void *base,
			  struct opt_error *error)
{
	if (!host_is_name(value))
		return -EINVAL;
	strcpy(((struct backend_spec *)base)->tls_name, value);
	return 0;
}

#define AT(member) OPT_AT(struct backend_spec, member)

static const struct opt keys[] = {
	{"weight", OPT_NUMBER, AT(weight), .max = BACKEND_WEIGHT,
	 .initial = "1"},
	{"maxconn", OPT_NUMBER, AT(maxconn), .max = 2000000},
	{"backup", OPT_FLAG, AT(backup), .arg = NULL},
	{"state", OPT_CHOICE, AT(state), .arg = STATES},
	{"check", OPT_CUSTOM, .read = parse_check,
	 .expected =
		 "tcp, http:/PATH, expect:TEXT, udp, udp:TEXT, dns or none"},
	{"send", OPT_CUSTOM, .read = parse_send, .expected = "1 to 127 bytes"},
	{"sni", OPT_CUSTOM, .read = parse_sni,
	 .expected = "NAME, *.NAME or several with | between two"},
	{"tls", OPT_CHOICE, AT(tls), .arg = "off|verify|insecure"},
	{"tls-name", OPT_CUSTOM, .read = parse_tls_name,
	 .expected = "a host name"},
};

/* The first word: [NAME=]HOST:PORT. */
static int parse_first(char *word, struct backend_spec *out,
		       struct opt_error *error)
{
	char *equals = strchr(word, '=');

	if (equals) {
		*equals = '\0';
		if (!is_name(word))
			return opt_expect(error,
					  "a name of letters, digits, '.', '_' "
					  "and '-' before '=', 63 of them at "
					  "most");
		strcpy(out->name, word);
		return parse_host(equals + 1, out, error);
	}
	/* An address that is short enough is its own name. */
	if (strlen(word) >= BACKEND_NAME_MAX)
		return opt_expect(error, "NAME=HOST:PORT for a host this long");
	strcpy(out->name, word);
	return parse_host(word, out, error);
}

int backend_spec_parse(const char *text, struct backend_spec *out,
		       struct opt_error *error)
{
	char copy[1024], *next = copy;
	int err;

	*out = (struct backend_spec){0};
	opt_set_defaults(keys, OPT_COUNT(keys), out);
	if (strlen(text) >= sizeof(copy))
		return opt_expect(error, "fewer than %zu bytes", sizeof(copy));
	strcpy(copy, text);
	err = parse_first(strsep(&next, ","), out, error);
	while (err == 0 && next)
		err = opt_set_key(keys, OPT_COUNT(keys), strsep(&next, ","),
				  out, error);
	if (err == 0 && out->send[0] && out->check != BACKEND_CHECK_EXPECT &&
	    out->check != BACKEND_CHECK_UDP)
		err = opt_expect(error, "check=expect:TEXT or check=udp "
					"together with send=");
	if (err == 0 && out->tls_name[0] && !out->tls)
		err = opt_expect(error, "tls=verify or tls=insecure together "
					"with tls-name=");
	if (err == 0 && out->tls &&
	    (out->check == BACKEND_CHECK_UDP ||
	     out->check == BACKEND_CHECK_DNS))
		err = opt_expect(error, "check=tcp, http or expect:TEXT "
					"together with tls=");
	return err;
}

/* Matches one pattern of `len` bytes against a name. */
static unsigned match_pattern(const char *pattern, size_t len, const char *name,
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

	if (port != (spec->tls ? 443 : 80))
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
		unsigned well = match_pattern(at, len, name, name_len);

		if (well > best)
			best = well;
		at = end ? end + 1 : NULL;
	}
	return best;
}
