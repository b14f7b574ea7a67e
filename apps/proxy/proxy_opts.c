/* The options that coronet-proxy and epoll-proxy share. */
#include "apps/proxy/proxy_opts.h"

#include <errno.h>
#include <string.h>

#define S	     OPT_NS_PER_S
#define CLIENTS_MAX  2000000
#define DEFAULT_PORT 8080 /* of every address */
#define PORT_TEXT    OPT_NUMBER_TEXT(DEFAULT_PORT)
#define AT(what)     OPT_AT(struct proxy_opts, what)

/* ---- addresses ---- */

const char *proxy_listen_prefix(enum proxy_listen kind)
{
	static const char *const prefixes[] = {"", "udp:", "tls:"};

	return prefixes[kind];
}

/* Skips the prefix of a --listen. */
static enum proxy_listen take_prefix(const char **text)
{
	enum proxy_listen kind = PROXY_LISTEN_TLS;

	while (kind && strncmp(*text, proxy_listen_prefix(kind), 4) != 0)
		kind--;
	*text += strlen(proxy_listen_prefix(kind));
	return kind;
}

static const struct opt listen_keys[] = {
	{"rate", OPT_NUMBER, OPT_AT(struct proxy_rate, per_s), .min = 1,
	 .max = 1000000},
	{"burst", OPT_NUMBER, OPT_AT(struct proxy_rate, burst), .min = 1,
	 .max = 1000000},
};

size_t proxy_listen_fixed(const char *text)
{
	return strcspn(text, ",");
}

/* Reads the address and port into `at`, and the keys that follow. */
static int parse_listen(const char *text, struct opt_endpoint *end, char *at,
			size_t at_len, struct proxy_rate *rate,
			struct opt_error *error)
{
	size_t fixed = proxy_listen_fixed(text);
	char copy[128], *next = copy;
	int err = 0;

	*rate = (struct proxy_rate){0};
	if (fixed >= at_len || strlen(text) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, text);
	strcpy(at, strsep(&next, ","));
	if (opt_parse_endpoint(at, end) < 0)
		return -EINVAL;
	while (err == 0 && next)
		err = opt_set_key(listen_keys, OPT_COUNT(listen_keys),
				  strsep(&next, ","), rate, error);
	if (err == 0 && rate->burst && !rate->per_s)
		err = opt_expect(error, "rate= together with burst=");
	if (rate->burst == 0)
		rate->burst = rate->per_s;
	return err;
}

static bool is_same_listen(const struct proxy_opts *opts, unsigned i,
			   const struct opt_endpoint *end,
			   enum proxy_listen kind)
{
	return (kind == PROXY_LISTEN_UDP) ==
		       (opts->listen_kinds[i] == PROXY_LISTEN_UDP) &&
	       memcmp(&opts->listens[i].addr, &end->addr, sizeof(end->addr)) ==
		       0;
}

int proxy_opts_find_listen(const struct proxy_opts *opts,
			   const struct proxy_opts *other, unsigned index)
{
	for (unsigned i = 0; i < other->n_listens; i++)
		if (is_same_listen(other, i, &opts->listens[index],
				   opts->listen_kinds[index]))
			return (int)i;
	return -1;
}

static int add_listen(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	struct proxy_opts *opts = base;
	unsigned n = opts->n_listens;
	char at[sizeof(opts->listen_texts[0])];
	struct opt_endpoint end;
	struct proxy_rate rate;
	enum proxy_listen kind = take_prefix(&text);

	if (kind && opts->plain)
		return opt_expect(error, "coronet-proxy for %s",
				  kind == PROXY_LISTEN_UDP ? "UDP" : "TLS");
	if (opts->plain && text[proxy_listen_fixed(text)])
		return opt_expect(error, "coronet-proxy for rate=");
	if (parse_listen(text, &end, at, sizeof(at), &rate, error) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		if (is_same_listen(opts, i, &end, kind))
			return opt_expect(error, "each address and port once");
	if (opts->n_listens == PROXY_MAX_LISTENS)
		return opt_expect(error, "at most %d of them, or --port",
				  PROXY_MAX_LISTENS);
	opts->listens[n] = end;
	opts->listen_kinds[n] = kind;
	opts->listen_rates[n] = rate;
	strcpy(opts->listen_texts[n], at);
	opts->n_listens++;
	return 0;
}

/* Two backends may have one address, under two names. */
static bool is_same(const struct proxy_opts *opts, unsigned i,
		    const struct backend_spec *spec)
{
	bool own_name = !strchr(spec->name, ':');

	if (strcmp(opts->specs[i].name, spec->name) == 0)
		return true;
	return !own_name && !spec->by_name && !opts->specs[i].by_name &&
	       strchr(opts->specs[i].name, ':') &&
	       memcmp(&opts->backends[i].addr, &spec->end.addr,
		      sizeof(spec->end.addr)) == 0;
}

static int add_backend(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error)
{
	struct proxy_opts *opts = base;
	struct backend_spec spec;

	if (backend_spec_parse(text, &spec, error) < 0)
		return -EINVAL;
	if (opts->plain && (spec.by_name || strcmp(spec.name, text) != 0))
		return opt_expect(error, "the address of one host and a port");
	for (unsigned i = 0; i < opts->n_backends; i++)
		if (is_same(opts, i, &spec))
			return opt_expect(error, "each backend once");
	if (opts->n_backends == BALANCE_MAX)
		return opt_expect(error, "at most %d backends", BALANCE_MAX);
	opts->specs[opts->n_backends] = spec;
	opts->backends[opts->n_backends] = spec.end;
	opts->backend_texts[opts->n_backends++] = text;
	return 0;
}

/* ---- the table ---- */

static const struct opt rows[] = {
	{"listen", OPT_CUSTOM,
	 .arg = "[udp:|tls:]ADDRESS:PORT[,rate=N[,burst=N]]",
	 .read = add_listen, .expected = "an address and a port",
	 .example = "10.9.0.1:8080",
	 .help = "Accept TCP clients at this address (repeatable). Only "
		 "coronet-proxy takes udp:, for UDP clients, tls:, for TCP "
		 "clients that use TLS, which --tls-cert needs, and rate=, the "
		 "maximum number of new clients per second, after a burst of "
		 "burst= (default: as many)",
	 .fixed = true},
	{"port", OPT_NUMBER, AT(port), "PORT", NULL, 1, 65535,
	 .example = PORT_TEXT,
	 .help = "Accept clients at this port of every address "
		 "(default " PORT_TEXT " if there is no --listen)",
	 .fixed = true},
	{"to", OPT_CUSTOM, .arg = "[NAME=]ADDRESS:PORT[,KEY=VALUE...]",
	 .read = add_backend, .example = "10.9.0.2:80",
	 .help = "A backend (repeatable). Only coronet-proxy takes NAME=, a "
		 "host name in place of ADDRESS, and the keys weight=, "
		 "maxconn=, backup, state=, check=, send=, sni=, tls= and "
		 "tls-name="},
	{"balance", OPT_CHOICE, AT(balance), "rr|least|hash", "rr",
	 .help = "How to choose a backend. rr: in turn; least: the one with "
		 "the fewest connections; hash: by a consistent hash of the "
		 "client's address"},
	{"connect-timeout", OPT_SECONDS, AT(connect_timeout_ns), "SECONDS", "3",
	 S / 100, OPT_DAY_NS,
	 .help = "Give up connecting after this many seconds, and try the next "
		 "backend"},
	{"health-interval", OPT_SECONDS, AT(health_interval_ns), "SECONDS", "2",
	 0, OPT_DAY_NS,
	 .help = "Interval between health checks of a backend; 0: no checks"},
	{"rise", OPT_NUMBER, AT(rise), "N", "2", 1, 1000,
	 .help = "Successful checks in a row after which a backend is up"},
	{"fall", OPT_NUMBER, AT(fall), "N", "3", 1, 1000,
	 .help = "Failed checks in a row after which a backend is down"},
	{"send-proxy", OPT_CHOICE, AT(send_proxy), "v1|v2", NULL, 1,
	 .help = "Send backends the client's address in a PROXY protocol "
		 "header"},
	{"accept-proxy", OPT_FLAG, AT(accept_proxy),
	 .help = "Require a PROXY protocol header, v1 or v2, from clients"},
	{"proxy-timeout", OPT_SECONDS, AT(proxy_timeout_ns), "SECONDS", "3",
	 S / 100, OPT_DAY_NS,
	 .help = "Time allowed for the PROXY header to arrive"},
	{"idle-timeout", OPT_SECONDS, AT(idle_timeout_ns), "SECONDS", "300", 0,
	 OPT_DAY_NS,
	 .help = "Reset sessions that are idle for this long; 0: never"},
	{"max-clients", OPT_NUMBER, AT(max_clients), "N", "100000", 1,
	 CLIENTS_MAX, .help = "Maximum number of clients at a time",
	 .fixed = true},
	{"max-clients-per-source", OPT_NUMBER, AT(max_source), "N", NULL, 1,
	 CLIENTS_MAX, .example = "1024",
	 .help = "Maximum number of clients of one IPv4 address or IPv6 /64 "
		 "(default: half of --max-clients, at least 1024)",
	 .fixed = true},
	{"max-half-open", OPT_NUMBER, AT(max_half_open), "N", "4096", 1,
	 CLIENTS_MAX,
	 .help = "Maximum number of clients whose PROXY header, ClientHello or "
		 "TLS handshake is incomplete; beyond it the oldest is reset",
	 .fixed = true},
	{"over-limit", OPT_CHOICE, AT(over_limit), "wait|reset", "wait",
	 .help = "What to do with clients beyond --max-clients or the rate= of "
		 "--listen. wait: leave them in the backlog until a session "
		 "ends or the rate allows them; reset: reset them",
	 .fixed = true},
	{"drain-timeout", OPT_SECONDS, AT(drain_timeout_ns), "SECONDS", "30", 0,
	 OPT_DAY_NS, .help = "Time that sessions may continue after SIGTERM",
	 .fixed = true},
};

/* The index of the first listener for UDP, or for anything else; or -1. */
static int find_listen(const struct proxy_opts *opts, bool udp)
{
	for (unsigned i = 0; i < opts->n_listens; i++)
		if ((opts->listen_kinds[i] == PROXY_LISTEN_UDP) == udp)
			return (int)i;
	return -1;
}

/* Without check=, a backend is checked by TCP if any client uses it. */
static void set_checks(struct proxy_opts *opts)
{
	bool udp = find_listen(opts, false) < 0 && opts->port == 0;

	for (unsigned i = 0; i < opts->n_backends; i++)
		if (opts->specs[i].check == BACKEND_CHECK_DEFAULT)
			opts->specs[i].check =
				udp ? BACKEND_CHECK_UDP : BACKEND_CHECK_TCP;
}

static int check_opts(void *base, struct opt_error *error)
{
	struct proxy_opts *opts = base;
	int udp;

	if (opts->n_backends == 0)
		return opt_refuse(error, "--to", NULL, "a backend",
				  "--to 10.9.0.2:80");
	if (opts->n_listens == 0 && opts->port == 0)
		opts->port = DEFAULT_PORT;
	udp = find_listen(opts, true);
	if (udp >= 0 && (opts->send_proxy || opts->accept_proxy))
		return opt_fail(error,
				"--listen udp:%s: expected neither "
				"--send-proxy nor --accept-proxy with UDP",
				opts->listen_texts[udp]);
	for (unsigned i = 0; udp >= 0 && i < opts->n_backends; i++)
		if (opts->specs[i].tls)
			return opt_fail(error,
					"--to '%s': expected no tls= with "
					"--listen udp:%s",
					opts->backend_texts[i],
					opts->listen_texts[udp]);
	set_checks(opts);
	if (opts->max_source == 0)
		opts->max_source = opts_source_limit(opts->max_clients);
	if (opts->health_interval_ns && opts->health_interval_ns < S / 100)
		opts->health_interval_ns = S / 100;
	for (unsigned i = 0; i < opts->n_backends; i++)
		for (unsigned j = 0; j < opts->n_listens; j++)
			if (!opts->specs[i].by_name &&
			    memcmp(&opts->backends[i].addr,
				   &opts->listens[j].addr,
				   sizeof(opts->listens[j].addr)) == 0)
				return opt_refuse(
					error, "--to", opts->backend_texts[i],
					"a backend other than the proxy",
					"--to 10.9.0.2:80");
	return 0;
}

OPT_SET(proxy_opts, rows, 0x2000, check_opts)

const struct argp proxy_opts_argp = OPT_ARGP(proxy_opts);

void proxy_opts_init(struct proxy_opts *opts)
{
	*opts = (struct proxy_opts){0};
	opt_set_defaults(rows, OPT_COUNT(rows), opts);
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
