#include "apps/proxy/steer_opts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "apps/common/opts.h"
#include "apps/proxy/access_log.h"

#define S   OPT_NS_PER_S
#define DAY (86400 * S)

enum {
	OPT_QUEUE = 0x2100,
	OPT_QUEUE_TIMEOUT,
	OPT_RETRIES,
	OPT_RETRY_BUDGET,
	OPT_EJECT_AFTER,
	OPT_EJECT_TIME,
	OPT_SLOW_START,
	OPT_CLIENT_TIMEOUT,
	OPT_SERVER_TIMEOUT,
	OPT_HALF_CLOSED_TIMEOUT,
	OPT_KEEPALIVE,
	OPT_HELLO_TIMEOUT,
	OPT_RESOLVE_INTERVAL,
	OPT_ALLOW,
	OPT_DENY,
	OPT_PROXY_FROM,
	OPT_SOURCE_RATE,
	OPT_UNIQUE_ID,
	OPT_ACCESS_LOG
};

static const struct argp_option options[] = {
	{"queue", OPT_QUEUE, "N", 0,
	 "Maximum number of sessions that wait while all backends are at "
	 "maxconn; more are reset (default 1024)",
	 0},
	{"queue-timeout", OPT_QUEUE_TIMEOUT, "SECONDS", 0,
	 "Reset sessions that have waited this long for a backend (default 5)",
	 0},
	{"retries", OPT_RETRIES, "N", 0,
	 "Number of further backends to try when one fails (default 63: all)",
	 0},
	{"retry-budget", OPT_RETRY_BUDGET, "PERCENT", 0,
	 "Maximum number of retries per 100 sessions, after a burst of 100 "
	 "(default 100)",
	 0},
	{"eject-after", OPT_EJECT_AFTER, "N", 0,
	 "Stop using a backend after this many failed connects in a row; 0: "
	 "never (default 5)",
	 0},
	{"eject-time", OPT_EJECT_TIME, "SECONDS", 0,
	 "Time until an ejected backend is used again (default 10)", 0},
	{"slow-start", OPT_SLOW_START, "SECONDS", 0,
	 "Time over which a recovered backend regains its full share (default "
	 "0: at once)",
	 0},
	{"client-timeout", OPT_CLIENT_TIMEOUT, "SECONDS", 0,
	 "Reset sessions whose client sends and acknowledges nothing this long "
	 "(default 0: only --idle-timeout applies)",
	 0},
	{"server-timeout", OPT_SERVER_TIMEOUT, "SECONDS", 0,
	 "Reset sessions whose backend sends and acknowledges nothing this "
	 "long (default 0: only --idle-timeout applies)",
	 0},
	{"half-closed-timeout", OPT_HALF_CLOSED_TIMEOUT, "SECONDS", 0,
	 "Reset half-closed sessions that are idle this long (default 0: only "
	 "--idle-timeout applies)",
	 0},
	{"keepalive", OPT_KEEPALIVE, "SECONDS", 0,
	 "Send keepalive probes, at most three, to clients and backends that "
	 "are silent this long (default 0: never)",
	 0},
	{"hello-timeout", OPT_HELLO_TIMEOUT, "SECONDS", 0,
	 "Time allowed for the TLS ClientHello to arrive if backends have sni= "
	 "(default 5)",
	 0},
	{"resolve-interval", OPT_RESOLVE_INTERVAL, "SECONDS", 0,
	 "Interval between lookups of backends' names, unless a TTL is shorter "
	 "(default 30)",
	 0},
	{"allow", OPT_ALLOW, "NETWORK[,...]", 0,
	 "Accept only clients of these networks, as in 10.0.0.0/8; the longest "
	 "prefix decides (repeatable)",
	 0},
	{"deny", OPT_DENY, "NETWORK[,...]", 0,
	 "Refuse clients of these networks (repeatable)", 0},
	{"proxy-from", OPT_PROXY_FROM, "NETWORK[,...]", 0,
	 "With --accept-proxy: networks that send a PROXY header; all others "
	 "are clients themselves (repeatable; default: all send one)",
	 0},
	{"max-rate-per-source", OPT_SOURCE_RATE, "N", 0,
	 "Maximum number of new connections per second of one IPv4 address or "
	 "IPv6 /64; more are reset (default: unlimited)",
	 0},
	{"unique-id", OPT_UNIQUE_ID, NULL, 0,
	 "Add a unique ID to PROXY v2 headers that are sent and to the access "
	 "log",
	 0},
	{"access-log", OPT_ACCESS_LOG, "FILE|udp:ADDRESS:PORT", 0,
	 "Log one line per session to a file (reopened on SIGUSR1) or to a "
	 "syslog server",
	 0},
	{0},
};

void steer_opts_init(struct steer_opts *opts)
{
	*opts = (struct steer_opts){
		.queue = 1024,
		.queue_timeout_ns = 5 * S,
		.retries = 63,
		.retry_percent = 100,
		.eject_after = 5,
		.eject_ns = 10 * S,
		.hello_timeout_ns = 5 * S,
		.resolve_interval_ns = 30 * S,
	};
}

void steer_opts_fini(struct steer_opts *opts)
{
	access_list_fini(&opts->clients);
	access_list_fini(&opts->proxy_from);
}

static int64_t timeout(const struct argp_state *state, const char *option,
		       const char *arg, int64_t min_ns)
{
	char example[64];

	snprintf(example, sizeof(example), "%s 5", option);
	return opts_seconds(state, option, arg, min_ns, DAY, example);
}

static unsigned parse_count(const struct argp_state *state, const char *option,
			    const char *arg, uint64_t min, uint64_t max)
{
	char example[64];

	snprintf(example, sizeof(example), "%s 5", option);
	return (unsigned)opts_number(state, option, arg, min, max, example);
}

static void add_nets(const struct argp_state *state, const char *option,
		     const char *arg, struct access_list *list, bool allow)
{
	int err = access_list_add(list, arg, allow);
	char example[64];

	snprintf(example, sizeof(example), "%s 10.0.0.0/8,fd00::/8", option);
	if (err < 0)
		opts_refuse(state, option, arg,
			    err == -EINVAL
				    ? "networks with no bits behind the prefix"
				    : "at most 16384 networks, and memory",
			    example);
}

static error_t parse_access(int key, char *arg, struct argp_state *state)
{
	struct steer_opts *opts = state->input;

	switch (key) {
	case OPT_ALLOW:
		add_nets(state, "--allow", arg, &opts->clients, true);
		return 0;
	case OPT_DENY:
		add_nets(state, "--deny", arg, &opts->clients, false);
		return 0;
	case OPT_PROXY_FROM:
		add_nets(state, "--proxy-from", arg, &opts->proxy_from, true);
		return 0;
	case OPT_SOURCE_RATE:
		opts->source_rate = parse_count(state, "--max-rate-per-source",
						arg, 1, 1000000);
		return 0;
	case OPT_UNIQUE_ID:
		opts->unique_id = true;
		return 0;
	case OPT_ACCESS_LOG:
		if (access_log_check(arg) < 0)
			opts_refuse(state, "--access-log", arg,
				    "a file that can be written, or "
				    "udp:ADDRESS:PORT",
				    "--access-log /var/log/coronet/access");
		opts->access_log = arg;
		return 0;
	case ARGP_KEY_END:
		access_list_ready(&opts->clients);
		access_list_ready(&opts->proxy_from);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_timeout(int key, char *arg, struct argp_state *state)
{
	struct steer_opts *opts = state->input;

	switch (key) {
	case OPT_CLIENT_TIMEOUT:
		opts->client_timeout_ns =
			timeout(state, "--client-timeout", arg, 0);
		return 0;
	case OPT_SERVER_TIMEOUT:
		opts->server_timeout_ns =
			timeout(state, "--server-timeout", arg, 0);
		return 0;
	case OPT_HALF_CLOSED_TIMEOUT:
		opts->half_closed_timeout_ns =
			timeout(state, "--half-closed-timeout", arg, 0);
		return 0;
	case OPT_KEEPALIVE:
		opts->keepalive_s =
			parse_count(state, "--keepalive", arg, 0, 86400);
		return 0;
	case OPT_HELLO_TIMEOUT:
		opts->hello_timeout_ns =
			timeout(state, "--hello-timeout", arg, S / 100);
		return 0;
	case OPT_RESOLVE_INTERVAL:
		opts->resolve_interval_ns =
			timeout(state, "--resolve-interval", arg, S / 10);
		return 0;
	default:
		return parse_access(key, arg, state);
	}
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct steer_opts *opts = state->input;

	switch (key) {
	case OPT_QUEUE:
		opts->queue = parse_count(state, "--queue", arg, 0, 2000000);
		return 0;
	case OPT_QUEUE_TIMEOUT:
		opts->queue_timeout_ns =
			timeout(state, "--queue-timeout", arg, S / 100);
		return 0;
	case OPT_RETRIES:
		opts->retries = parse_count(state, "--retries", arg, 0, 63);
		return 0;
	case OPT_RETRY_BUDGET:
		opts->retry_percent =
			parse_count(state, "--retry-budget", arg, 0, 6300);
		return 0;
	case OPT_EJECT_AFTER:
		opts->eject_after =
			parse_count(state, "--eject-after", arg, 0, 1000000);
		return 0;
	case OPT_EJECT_TIME:
		opts->eject_ns = timeout(state, "--eject-time", arg, S / 100);
		return 0;
	case OPT_SLOW_START:
		opts->slow_start_ns = timeout(state, "--slow-start", arg, 0);
		return 0;
	default:
		return parse_timeout(key, arg, state);
	}
}

const struct argp steer_opts_argp = {.options = options, .parser = parse_key};
