/* The options of coronet-proxy that epoll-proxy does not have. */
#include "apps/proxy/steer_opts.h"

#include <errno.h>

#define S	 OPT_NS_PER_S
#define AT(what) OPT_AT(struct steer_opts, what)
#define NETS	 "10.0.0.0/8,fd00::/8"

static int add_nets(const struct opt *opt, const char *text, void *base,
		    bool allow, struct opt_error *error)
{
	void *list = (char *)base + opt->at.offset;
	int err = access_list_add(list, text, allow);

	if (err < 0)
		opt_expect(
			error, "%s",
			err == -EINVAL
				? "networks whose bits after the prefix are 0"
				: "at most 16384 networks, and memory");
	return err;
}

static int allow_nets(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	return add_nets(opt, text, base, true, error);
}

static int deny_nets(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	return add_nets(opt, text, base, false, error);
}

static const struct opt rows[] = {
	{"queue", OPT_NUMBER, AT(queue), "N", "1024", 0, 2000000,
	 .help = "Maximum number of sessions that wait while all backends are "
		 "at maxconn; more are reset"},
	{"queue-timeout", OPT_SECONDS, AT(queue_timeout_ns), "SECONDS", "5",
	 S / 100, OPT_DAY_NS,
	 .help = "Reset sessions that have waited this long for a backend"},
	{"retries", OPT_NUMBER, AT(retries), "N", "63", 0, 63,
	 .help = "How many other backends to try after one has failed "
		 "(default {default}: all)"},
	{"retry-budget", OPT_NUMBER, AT(retry_percent), "PERCENT", "100", 0,
	 6300,
	 .help = "Maximum number of retries per 100 sessions, after a burst of "
		 "100"},
	{"eject-after", OPT_NUMBER, AT(eject_after), "N", "5", 0, 1000000,
	 .help = "Stop using a backend after this many failed connects in a "
		 "row; 0: never"},
	{"eject-time", OPT_SECONDS, AT(eject_ns), "SECONDS", "10", S / 100,
	 OPT_DAY_NS, .help = "Time until an ejected backend is used again"},
	{"slow-start", OPT_SECONDS, AT(slow_start_ns), "SECONDS", "0", 0,
	 OPT_DAY_NS,
	 .help = "Time over which a recovered backend regains its full share "
		 "(default {default}: at once)"},
	{"sticky", OPT_SECONDS, AT(sticky_ns), "SECONDS", "0", 0, OPT_DAY_NS,
	 .help = "Keep a client, which is an IPv4 address or IPv6 /64, at its "
		 "backend while that is up, until it has had no session for "
		 "this long (default {default}: off)"},
	{"client-timeout", OPT_SECONDS, AT(client_timeout_ns), "SECONDS", "0",
	 0, OPT_DAY_NS,
	 .help = "Reset sessions whose client sends and acknowledges nothing "
		 "for this long (default {default}: only --idle-timeout "
		 "applies)"},
	{"server-timeout", OPT_SECONDS, AT(server_timeout_ns), "SECONDS", "0",
	 0, OPT_DAY_NS,
	 .help = "Reset sessions whose backend sends and acknowledges nothing "
		 "for this long (default {default}: only --idle-timeout "
		 "applies)"},
	{"half-closed-timeout", OPT_SECONDS, AT(half_closed_timeout_ns),
	 "SECONDS", "0", 0, OPT_DAY_NS,
	 .help = "Reset half-closed sessions that are idle for this long "
		 "(default "
		 "{default}: only --idle-timeout applies)"},
	{"keepalive", OPT_NUMBER, AT(keepalive_s), "SECONDS", "0", 0, 86400,
	 .help = "Probe clients and backends that are silent for this long, "
		 "and reset the session after three probes without an answer "
		 "(default {default}: never)"},
	{"hello-timeout", OPT_SECONDS, AT(hello_timeout_ns), "SECONDS", "5",
	 S / 100, OPT_DAY_NS,
	 .help = "Time allowed for the TLS ClientHello to arrive if backends "
		 "have sni="},
	{"resolve-interval", OPT_SECONDS, AT(resolve_interval_ns), "SECONDS",
	 "30", S / 10, OPT_DAY_NS,
	 .help = "Interval between lookups of backends' names, unless a TTL is "
		 "shorter"},
	{"allow", OPT_CUSTOM, AT(clients), "NETWORK[,...]", NULL,
	 .read = allow_nets, .example = NETS,
	 .help = "Accept only clients of these networks, as in 10.0.0.0/8; the "
		 "longest prefix decides (repeatable)"},
	{"deny", OPT_CUSTOM, AT(clients), "NETWORK[,...]", NULL,
	 .read = deny_nets, .example = NETS,
	 .help = "Refuse clients of these networks (repeatable)"},
	{"proxy-from", OPT_CUSTOM, AT(proxy_from), "NETWORK[,...]", NULL,
	 .read = allow_nets, .example = NETS,
	 .help = "With --accept-proxy: expect a PROXY header only from hosts "
		 "of these networks; all others are clients themselves "
		 "(repeatable; default: expect it from all)"},
	{"max-rate-per-source", OPT_NUMBER, AT(source_rate), "N", NULL, 1,
	 1000000,
	 .help = "Maximum number of new connections per second of one IPv4 "
		 "address or IPv6 /64; more are reset (default: unlimited)"},
	{"unique-id", OPT_FLAG, AT(unique_id), NULL, NULL,
	 .help = "Add a unique ID to PROXY v2 headers that are sent and to the "
		 "access log"},
	{"udp-timeout", OPT_SECONDS, AT(udp_timeout_ns), "SECONDS", "30",
	 S / 10, OPT_DAY_NS,
	 .help = "End a UDP session after this long without a datagram"},
	{"udp-responses", OPT_NUMBER, AT(udp_responses), "N", "0", 0, 1000000,
	 .help = "End a UDP session when its backend has sent this many "
		 "datagrams for each of the client's; 1 suits DNS (default "
		 "{default}: only --udp-timeout ends it)"},
	{"max-udp-sessions", OPT_NUMBER, AT(max_udp_sessions), "N", "65536", 1,
	 1000000, .fixed = true,
	 .help = "Maximum number of UDP sessions; beyond it the one that has "
		 "been idle longest ends"},
	{"access-log", OPT_CUSTOM, AT(access_log), LINE_LOG_ARG, NULL,
	 .read = line_log_read, .expected = LINE_LOG_EXPECTED,
	 .example = "/var/log/coronet/access", .fixed = true,
	 .help = "Log one line per session to a file or a FIFO (reopened on "
		 "SIGUSR1), to a syslog server, or to the local one, as in "
		 "unix:/dev/log"},
	{"access-log-format", OPT_CHOICE, AT(access_form), "text|json", "text",
	 .fixed = true,
	 .help = "Write the lines of --access-log as words, or as JSON "
		 "objects"},
};

static int sort_lists(void *base, struct opt_error *error)
{
	struct steer_opts *opts = base;

	access_list_ready(&opts->clients);
	access_list_ready(&opts->proxy_from);
	return 0;
}

OPT_SET(steer_opts, rows, 0x2100, sort_lists)

const struct argp steer_opts_argp = OPT_ARGP(steer_opts);

void steer_opts_init(struct steer_opts *opts)
{
	*opts = (struct steer_opts){0};
	opt_set_defaults(rows, OPT_COUNT(rows), opts);
}

void steer_opts_fini(struct steer_opts *opts)
{
	access_list_fini(&opts->clients);
	access_list_fini(&opts->proxy_from);
}
