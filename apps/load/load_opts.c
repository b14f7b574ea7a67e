/* The options that coronet-load and epoll-load share. */
#include "apps/load/load_opts.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SIZE	  64
#define DEFAULT_BULK_SIZE 16384
#define SIZE_TEXT	  OPT_NUMBER_TEXT(DEFAULT_SIZE)
#define BULK_SIZE_TEXT	  OPT_NUMBER_TEXT(DEFAULT_BULK_SIZE)
#define PATH_MAX_BYTES	  500
#define CIPHER_BYTES                                                           \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
#define S	   OPT_NS_PER_S
#define AT(member) OPT_AT(struct load_opts, member)

static int read_target(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error)
{
	struct load_opts *opts = base;

	opts->target_text = text;
	return host_parse(text, &opts->target, opts->target_host);
}

static const char *const mode_names[] = {
	[LOAD_ECHO] = "echo",
	[LOAD_CPS] = "cps",
	[LOAD_IDLE] = "idle",
	[LOAD_BULK] = "bulk",
};

static int read_path(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	size_t len = strlen(text);

	if (*text != '/' || len > PATH_MAX_BYTES)
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~' ||
		    (text[i] == '%' &&
		     !(isxdigit(text[i + 1]) && isxdigit(text[i + 2]))))
			return -EINVAL;
	((struct load_opts *)base)->http_path = text;
	return 0;
}

#if APPS_TLS
static int read_ca(const struct opt *opt, const char *text, void *base,
		   struct opt_error *error)
{
	if (access(text, R_OK) < 0)
		return -EINVAL;
	((struct load_opts *)base)->tls_ca = text;
	return 0;
}

static int read_name(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	if (!host_is_name(text))
		return -EINVAL;
	((struct load_opts *)base)->tls_name = text;
	return 0;
}

/* Appends a name to a list with colons. False: it has no room. */
static bool add_cipher(char *list, const char *name, size_t len)
{
	size_t used = strlen(list);

	if (used + len + 2 > LOAD_CIPHERS_BYTES)
		return false;
	if (used)
		list[used++] = ':';
	memcpy(list + used, name, len);
	list[used + len] = '\0';
	return true;
}

/* Names of TLS 1.3 begin with "TLS_", those of TLS 1.2 do not. */
static int read_ciphers(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	struct load_opts *opts = base;
	size_t len;

	opts->tls_suites[0] = opts->tls_ciphers[0] = '\0';
	for (;; text += len + 1) {
		len = strcspn(text, ":");
		if (len == 0 || len != strspn(text, CIPHER_BYTES))
			return -EINVAL;
		if (!add_cipher(strncmp(text, "TLS_", 4) == 0
					? opts->tls_suites
					: opts->tls_ciphers,
				text, len))
			return -EINVAL;
		if (text[len] == '\0')
			return 0;
	}
}
#endif

static const struct opt rows[] = {
	{.kind = OPT_HEADING, .help = "What to load:", .group = 10},
	{"target", OPT_CUSTOM, .arg = "HOST:PORT", .read = read_target,
	 .expected = "an address or a name of a host, and a port from 1 to "
		     "65535",
	 .example = "10.9.0.1:7777 or --target [fd00::1]:7777",
	 .help = "The server's address or name and port, as in 10.9.0.1:7777, "
		 "[fd00::1]:7777 or server.example:7777"},
	{"mode", OPT_CHOICE, AT(mode), "echo|cps|idle|bulk", "echo",
	 .help = "echo: requests and responses on persistent connections; cps: "
		 "connect, one request and response, close; idle: connect and "
		 "stay open; bulk: write without waiting, read what comes "
		 "back"},
	{"conns", OPT_NUMBER, AT(conns), "N", "64", 1, 10000000,
	 .help = "Number of connections at a time"},
	{"size", OPT_NUMBER, AT(size), "BYTES", NULL, 1, 16 << 20,
	 .help = "Bytes per request (default " SIZE_TEXT
		 "), or per write in bulk "
		 "mode (default " BULK_SIZE_TEXT ")",
	 .example = SIZE_TEXT},
	{"verify", OPT_FLAG, AT(verify), .arg = NULL,
	 .help = "Send bytes that identify their connection and position, and "
		 "check them when they come back"},
	{"http", OPT_CUSTOM, .arg = "PATH", .read = read_path,
	 .expected = "a path that begins with /, as in a URL, of at "
		     "most " OPT_NUMBER_TEXT(PATH_MAX_BYTES) " bytes",
	 .example = "/index.html",
	 .help = "Request this path by HTTP/1.1 GET instead of sending bytes "
		 "to "
		 "an echo server; a response has to have status 2xx and a "
		 "Content-Length"},
#if APPS_TLS
	{"tls", OPT_FLAG, AT(tls), .arg = NULL,
	 .help = "Use TLS, without verifying the server's certificate"},
	{"tls-ca", OPT_CUSTOM, .arg = "FILE", .read = read_ca,
	 .expected = "a PEM file that can be read", .example = "ca.pem",
	 .help = "Use TLS, and verify the server's certificate with the CAs of "
		 "this PEM file"},
	{"tls-name", OPT_CUSTOM, .arg = "NAME", .read = read_name,
	 .expected = "the name of a host", .example = "server.example",
	 .help = "Ask the server for the certificate of this name (default: "
		 "the name of --target, if it is one)"},
	{"tls-resume", OPT_FLAG, AT(tls_resume), .arg = NULL,
	 .help = "Resume sessions of connections that have ended, where the "
		 "server allows that"},
	{"tls-ciphers", OPT_CUSTOM, .arg = "NAME[:NAME...]",
	 .read = read_ciphers,
	 .expected = "names of ciphers, as 'openssl ciphers' lists them, with "
		     "colons between them",
	 .example = "TLS_AES_128_GCM_SHA256",
	 .help = "Offer these ciphers only, and only the versions of TLS that "
		 "have them"},
#endif
	{.kind = OPT_HEADING, .help = "When and how fast:", .group = 11},
	{"seconds", OPT_SECONDS, AT(duration_ns), "SECONDS", "5", S / 100,
	 OPT_DAY_NS, .help = "Duration of the measurement"},
	{"warmup", OPT_SECONDS, AT(warmup_ns), "SECONDS", "0", 0, OPT_DAY_NS,
	 .help = "Duration of the load before the measurement"},
	{"rate", OPT_NUMBER, AT(rate), "N", "0", 0, 1000000000,
	 .help = "Open loop (echo and cps): send N requests a second over all "
		 "connections, and count the latency of each from the time at "
		 "which it should have been sent. {default}, the default, is a "
		 "closed loop: each connection sends its next request when the "
		 "response has arrived"},
	{"ramp", OPT_SECONDS, AT(ramp_ns), "SECONDS", "0", 0, OPT_DAY_NS,
	 .help = "Open the connections evenly over this time"},
	{"timeout", OPT_SECONDS, AT(timeout_ns), "SECONDS", "5", S / 100,
	 OPT_DAY_NS,
	 .help = "Time allowed for a connection to open, and for a response to "
		 "arrive"},
	{.kind = OPT_HEADING, .help = "What to show:", .group = 12},
	{"interval", OPT_SECONDS, AT(interval_ns), "SECONDS", "1", 0,
	 OPT_DAY_NS, .help = "Interval of progress lines on stderr; 0: none"},
	{"json", OPT_FILE, AT(json), "FILE", .arg_optional = true,
	 .example = "result.json",
	 .help = "Print the result as JSON to FILE; without FILE, print only "
		 "JSON, to stdout"},
	{"report-limited", OPT_FLAG, AT(report_limited), .arg = NULL,
	 .help = "Report even if this load generator was the bottleneck; rates "
		 "are then lower bounds. Without this option it reports no "
		 "rates in that case, and its exit status is 3"},
};

const char *load_mode_name(enum load_mode mode)
{
	assert(mode < sizeof(mode_names) / sizeof(mode_names[0]));
	return mode_names[mode];
}

/* Makes the request of --http, whose length is the size from now on. */
static int set_request(struct load_opts *opts, struct opt_error *error)
{
	const char *host = opts->tls_name ? opts->tls_name : opts->target_text;

	if (opts->mode == LOAD_BULK || opts->verify || opts->size)
		return opt_fail(error,
				"--http '%s': not with --mode bulk, --verify "
				"and --size, which are for echo servers; leave "
				"them out",
				opts->http_path);
	opts->size = (uint32_t)snprintf(opts->request, sizeof(opts->request),
					"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n",
					opts->http_path, host);
	return 0;
}

static int check_tls(struct load_opts *opts, struct opt_error *error)
{
	const char *option = opts->tls_name	? "--tls-name"
			     : opts->tls_resume ? "--tls-resume"
			     : opts->tls_suites[0] || opts->tls_ciphers[0]
				     ? "--tls-ciphers"
				     : NULL;

	opts->tls |= opts->tls_ca != NULL;
	if (option && !opts->tls)
		return opt_fail(error,
				"%s is for TLS: add --tls, or --tls-ca FILE",
				option);
	if (!opts->tls_name && opts->target_host[0])
		opts->tls_name = opts->target_host;
	return 0;
}

/* Checks what is known only after all options. */
static int check_opts(void *base, struct opt_error *error)
{
	struct load_opts *opts = base;
	char rate[24];

	if (!opts->target_text)
		return opt_refuse(error, "--target", NULL,
				  "the server's address and port",
				  "--target 10.9.0.1:7777");
	if (check_tls(opts, error) < 0)
		return -EINVAL;
	if (opts->rate && opts->mode != LOAD_ECHO && opts->mode != LOAD_CPS) {
		snprintf(rate, sizeof(rate), "%ju", (uintmax_t)opts->rate);
		return opt_refuse(error, "--rate", rate,
				  "a rate with --mode echo or cps only",
				  "--mode echo --rate 10000");
	}
	if (opts->http_path)
		return set_request(opts, error);
	if (opts->size == 0)
		opts->size = opts->mode == LOAD_BULK ? DEFAULT_BULK_SIZE
						     : DEFAULT_SIZE;
	return 0;
}

OPT_SET(load_opts, rows, 0x100, check_opts)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct load_opts *opts = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		*opts = (struct load_opts){0};
		opt_set_defaults(rows, OPT_COUNT(rows), opts);
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return load_opts_parse(key, arg, state);
	}
}

const struct argp load_opts_argp = {.options = load_opts_options,
				    .parser = parse_key,
				    .help_filter = load_opts_help};
