#include "apps/proxy/proxy_opts.h"

#include <string.h>

#define S OPT_NS_PER_S

enum {
	OPT_LISTEN = 0x2000,
	OPT_PORT,
	OPT_TO,
	OPT_BALANCE,
	OPT_CONNECT_TIMEOUT,
	OPT_HEALTH_INTERVAL,
	OPT_RISE,
	OPT_FALL,
	OPT_SEND_PROXY,
	OPT_ACCEPT_PROXY,
	OPT_PROXY_TIMEOUT,
	OPT_IDLE_TIMEOUT,
	OPT_MAX_CLIENTS,
	OPT_MAX_SOURCE,
	OPT_MAX_HALF_OPEN,
	OPT_OVER_LIMIT,
	OPT_DRAIN_TIMEOUT
};

static const struct argp_option options[] = {
	{"listen", OPT_LISTEN, "ADDRESS:PORT", 0,
	 "Accept clients here (repeatable)", 0},
	{"port", OPT_PORT, "PORT", 0,
	 "Accept clients at this port of every address (default 8080 if "
	 "there is no --listen)",
	 0},
	{"to", OPT_TO, "[NAME=]ADDRESS:PORT[,KEY=VALUE...]", 0,
	 "A backend (repeatable); NAME=, the name of a host in place of its "
	 "address, and keys are coronet-proxy's: weight=, maxconn=, backup, "
	 "state=, check=, send=, sni=",
	 0},
	{"balance", OPT_BALANCE, "rr|least|hash", 0,
	 "Choose backends in turn (default), by the fewest connections, or by "
	 "a consistent hash of the client's address",
	 0},
	{"connect-timeout", OPT_CONNECT_TIMEOUT, "SECONDS", 0,
	 "Give up connecting after this many seconds and try the next backend "
	 "(default 3)",
	 0},
	{"health-interval", OPT_HEALTH_INTERVAL, "SECONDS", 0,
	 "Interval between health checks of a backend; 0: no checks (default "
	 "2)",
	 0},
	{"rise", OPT_RISE, "N", 0,
	 "Successful checks in a row after which a backend is up (default 2)",
	 0},
	{"fall", OPT_FALL, "N", 0,
	 "Failed checks in a row after which a backend is down (default 3)", 0},
	{"send-proxy", OPT_SEND_PROXY, "v1|v2", 0,
	 "Send backends the client's address in a PROXY protocol header", 0},
	{"accept-proxy", OPT_ACCEPT_PROXY, NULL, 0,
	 "Require a PROXY protocol header, v1 or v2, from clients", 0},
	{"proxy-timeout", OPT_PROXY_TIMEOUT, "SECONDS", 0,
	 "Time allowed for the PROXY header to arrive (default 3)", 0},
	{"idle-timeout", OPT_IDLE_TIMEOUT, "SECONDS", 0,
	 "Reset sessions that are idle this long; 0: never (default 300)", 0},
	{"max-clients", OPT_MAX_CLIENTS, "N", 0,
	 "Maximum number of clients at a time (default 100000)", 0},
	{"max-clients-per-source", OPT_MAX_SOURCE, "N", 0,
	 "Maximum number of clients of one IPv4 address or IPv6 /64; more are "
	 "refused (default: half of --max-clients, at least 1024)",
	 0},
	{"max-half-open", OPT_MAX_HALF_OPEN, "N", 0,
	 "Maximum number of clients whose PROXY header is incomplete; beyond "
	 "it the oldest is reset (default 4096)",
	 0},
	{"over-limit", OPT_OVER_LIMIT, "wait|reset", 0,
	 "Leave clients beyond the limit in the backlog until another ends "
	 "(default), or reset them",
	 0},
	{"drain-timeout", OPT_DRAIN_TIMEOUT, "SECONDS", 0,
	 "Time that sessions may continue after SIGTERM (default 30)", 0},
	{0},
};

void proxy_opts_init(struct proxy_opts *opts)
{
	*opts = (struct proxy_opts){
		.connect_timeout_ns = 3 * S,
		.health_interval_ns = 2 * S,
		.rise = 2,
		.fall = 3,
		.proxy_timeout_ns = 3 * S,
		.idle_timeout_ns = 300 * S,
		.max_clients = 100000,
		.max_half_open = 4096,
		.drain_timeout_ns = 30 * S,
	};
}

/* Returns the index among up to three words, or ends the program. */
static int choice(const struct argp_state *state, const char *option,
		  const char *text, const char *const words[3],
		  const char *expected, const char *example)
{
	for (int i = 0; i < 3 && words[i]; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	opts_refuse(state, option, text, expected, example);
}

static void add_listen(struct proxy_opts *opts, const struct argp_state *state,
		       const char *text)
{
	const char *example = "--listen 10.9.0.1:8080";
	struct opt_endpoint end;

	if (opt_parse_endpoint(text, &end) < 0)
		opts_refuse(state, "--listen", text, "an address and a port",
			    example);
	for (unsigned i = 0; i < opts->n_listens; i++)
		if (memcmp(&opts->listens[i].addr, &end.addr,
			   sizeof(end.addr)) == 0)
			opts_refuse(state, "--listen", text,
				    "each address and port once", example);
	if (opts->n_listens == PROXY_MAX_LISTENS)
		opts_refuse(state, "--listen", text,
			    "at most 16 of them, or --port", example);
	opts->listens[opts->n_listens] = end;
	opts->listen_texts[opts->n_listens++] = text;
}

/* Two backends may have one address, under two names. */
static bool is_same(const struct proxy_opts *opts, unsigned i,
		    const struct backend_spec *spec)
{
	bool own_name = strchr(spec->name, ':') == NULL;

	if (strcmp(opts->specs[i].name, spec->name) == 0)
		return true;
	return !own_name && !spec->by_name && !opts->specs[i].by_name &&
	       strchr(opts->specs[i].name, ':') &&
	       memcmp(&opts->backends[i].addr, &spec->end.addr,
		      sizeof(spec->end.addr)) == 0;
}

static void add_backend(struct proxy_opts *opts, const struct argp_state *state,
			const char *text)
{
	const char *example = "--to 10.9.0.2:80", *expected;
	struct backend_spec spec;

	expected = backend_spec_parse(text, &spec);
	if (!expected && opts->plain &&
	    (spec.by_name || strcmp(spec.name, text) != 0))
		expected = "the address of one host and a port";
	if (expected)
		opts_refuse(state, "--to", text, expected, example);
	for (unsigned i = 0; i < opts->n_backends; i++)
		if (is_same(opts, i, &spec))
			opts_refuse(state, "--to", text, "each backend once",
				    example);
	if (opts->n_backends == BALANCE_MAX)
		opts_refuse(state, "--to", text, "at most 64 backends",
			    example);
	opts->specs[opts->n_backends] = spec;
	opts->backends[opts->n_backends] = spec.end;
	opts->backend_texts[opts->n_backends++] = text;
}

static void check_opts(struct proxy_opts *opts, const struct argp_state *state)
{
	if (opts->n_backends == 0)
		opts_refuse(state, "--to", NULL, "a backend",
			    "--to 10.9.0.2:80");
	if (opts->n_listens == 0 && opts->port == 0)
		opts->port = 8080;
	if (opts->max_source == 0)
		opts->max_source = opts_source_limit(opts->max_clients);
	for (unsigned i = 0; i < opts->n_backends; i++)
		for (unsigned j = 0; j < opts->n_listens; j++)
			if (!opts->specs[i].by_name &&
			    memcmp(&opts->backends[i].addr,
				   &opts->listens[j].addr,
				   sizeof(opts->listens[j].addr)) == 0)
				opts_refuse(state, "--to",
					    opts->backend_texts[i],
					    "a backend other than the proxy",
					    "--to 10.9.0.2:80");
}

bool proxy_opts_takes_all(const struct proxy_opts *opts, uint16_t port)
{
	for (unsigned i = 0; i < opts->n_listens; i++)
		if (opts->listens[i].port == port &&
		    (strcmp(opts->listens[i].host, "0.0.0.0") == 0 ||
		     strcmp(opts->listens[i].host, "::") == 0))
			return true;
	return opts->port == port;
}

static int64_t timeout(const struct argp_state *state, const char *option,
		       const char *arg, int64_t min_ns)
{
	char example[64];

	snprintf(example, sizeof(example), "%s 5", option);
	return opts_seconds(state, option, arg, min_ns, 86400 * S, example);
}

static unsigned parse_count(const struct argp_state *state, const char *option,
			    const char *arg, uint64_t max)
{
	char example[64];

	snprintf(example, sizeof(example), "%s 3", option);
	return (unsigned)opts_number(state, option, arg, 1, max, example);
}

/* Options that take one of a few words, or none. */
static error_t parse_word(int key, char *arg, struct argp_state *state)
{
	struct proxy_opts *opts = state->input;

	switch (key) {
	case OPT_BALANCE:
		opts->balance = (enum balance_kind)choice(
			state, "--balance", arg,
			(const char *const[3]){"rr", "least", "hash"},
			"rr, least or hash", "--balance least");
		return 0;
	case OPT_SEND_PROXY:
		opts->send_proxy =
			1 + choice(state, "--send-proxy", arg,
				   (const char *const[3]){"v1", "v2"},
				   "v1 or v2", "--send-proxy v2");
		return 0;
	case OPT_OVER_LIMIT:
		opts->over_limit = (enum proxy_over_limit)choice(
			state, "--over-limit", arg,
			(const char *const[3]){"wait", "reset"},
			"wait or reset", "--over-limit reset");
		return 0;
	case OPT_ACCEPT_PROXY:
		opts->accept_proxy = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct proxy_opts *opts = state->input;

	switch (key) {
	case OPT_LISTEN:
		add_listen(opts, state, arg);
		return 0;
	case OPT_PORT:
		opts->port = (uint16_t)opts_number(state, "--port", arg, 1,
						   65535, "--port 8080");
		return 0;
	case OPT_TO:
		add_backend(opts, state, arg);
		return 0;
	case OPT_CONNECT_TIMEOUT:
		opts->connect_timeout_ns =
			timeout(state, "--connect-timeout", arg, S / 100);
		return 0;
	case OPT_HEALTH_INTERVAL:
		opts->health_interval_ns =
			timeout(state, "--health-interval", arg, 0);
		if (opts->health_interval_ns &&
		    opts->health_interval_ns < S / 100)
			opts->health_interval_ns = S / 100;
		return 0;
	case OPT_RISE:
		opts->rise = parse_count(state, "--rise", arg, 1000);
		return 0;
	case OPT_FALL:
		opts->fall = parse_count(state, "--fall", arg, 1000);
		return 0;
	case OPT_PROXY_TIMEOUT:
		opts->proxy_timeout_ns =
			timeout(state, "--proxy-timeout", arg, S / 100);
		return 0;
	case OPT_IDLE_TIMEOUT:
		opts->idle_timeout_ns =
			timeout(state, "--idle-timeout", arg, 0);
		return 0;
	case OPT_MAX_CLIENTS:
		opts->max_clients =
			parse_count(state, "--max-clients", arg, 2000000);
		return 0;
	case OPT_MAX_SOURCE:
		opts->max_source = parse_count(
			state, "--max-clients-per-source", arg, 2000000);
		return 0;
	case OPT_MAX_HALF_OPEN:
		opts->max_half_open =
			parse_count(state, "--max-half-open", arg, 2000000);
		return 0;
	case OPT_DRAIN_TIMEOUT:
		opts->drain_timeout_ns =
			timeout(state, "--drain-timeout", arg, 0);
		return 0;
	case ARGP_KEY_END:
		check_opts(opts, state);
		return 0;
	default:
		return parse_word(key, arg, state);
	}
}

const struct argp proxy_opts_argp = {.options = options, .parser = parse_key};
