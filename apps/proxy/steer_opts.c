#include "apps/proxy/steer_opts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "apps/common/opts.h"
#include "apps/proxy/access_log.h"

#define S   OPTS_NS_PER_S
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
	 "Sessions that wait while every backend is at its maxconn; more are "
	 "reset (default 1024)",
	 0},
	{"queue-timeout", OPT_QUEUE_TIMEOUT, "SECONDS", 0,
	 "How long they wait before they are reset (default 5)", 0},
	{"retries", OPT_RETRIES, "N", 0,
	 "Backends that are tried after the first (default 63: all)", 0},
	{"retry-budget", OPT_RETRY_BUDGET, "PERCENT", 0,
	 "At most so many retries for 100 sessions, after 100 in a burst "
	 "(default 100)",
	 0},
	{"eject-after", OPT_EJECT_AFTER, "N", 0,
	 "Use a backend no more after so many failed connects in a row; 0: go "
	 "on (default 5)",
	 0},
	{"eject-time", OPT_EJECT_TIME, "SECONDS", 0, "For so long (default 10)",
	 0},
	{"slow-start", OPT_SLOW_START, "SECONDS", 0,
	 "A backend that came back gets its whole share after so long "
	 "(default 0: at once)",
	 0},
	{"client-timeout", OPT_CLIENT_TIMEOUT, "SECONDS", 0,
	 "Reset a session whose client neither sends nor acknowledges for so "
	 "long (default 0: --idle-timeout alone)",
	 0},
	{"server-timeout", OPT_SERVER_TIMEOUT, "SECONDS", 0,
	 "The same for the backend (default 0)", 0},
	{"half-closed-timeout", OPT_HALF_CLOSED_TIMEOUT, "SECONDS", 0,
	 "Reset a session of which one side has ended and nothing moves for so "
	 "long (default 0: --idle-timeout alone)",
	 0},
	{"keepalive", OPT_KEEPALIVE, "SECONDS", 0,
	 "Probe clients and backends that were silent for so long, three times "
	 "(default 0: never)",
	 0},
	{"hello-timeout", OPT_HELLO_TIMEOUT, "SECONDS", 0,
	 "Within which the TLS ClientHello has to come where backends have "
	 "sni= (default 5)",
	 0},
	{"resolve-interval", OPT_RESOLVE_INTERVAL, "SECONDS", 0,
	 "Resolve the names of backends so often, or as their answers' TTLs "
	 "say "
	 "if that is sooner (default 30)",
	 0},
	{"allow", OPT_ALLOW, "NETWORK[,...]", 0,
	 "Only clients of these networks, as in 10.0.0.0/8; the longest prefix "
	 "decides (repeatable)",
	 0},
	{"deny", OPT_DENY, "NETWORK[,...]", 0,
	 "No clients of these (repeatable)", 0},
	{"proxy-from", OPT_PROXY_FROM, "NETWORK[,...]", 0,
	 "With --accept-proxy: those that send a PROXY header; others are "
	 "clients themselves (repeatable; default: all)",
	 0},
	{"max-rate-per-source", OPT_SOURCE_RATE, "N", 0,
	 "Connections a second of each IPv4 address or IPv6 /64; more are "
	 "reset (default: any number)",
	 0},
	{"unique-id", OPT_UNIQUE_ID, NULL, 0,
	 "Add a unique ID to the PROXY headers that are sent (v2) and to the "
	 "access log",
	 0},
	{"access-log", OPT_ACCESS_LOG, "FILE|udp:ADDRESS:PORT", 0,
	 "A line a session, to a file (opened anew on SIGUSR1) or as syslog",
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

static unsigned count(const struct argp_state *state, const char *option,
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
		opts->source_rate =
			count(state, "--max-rate-per-source", arg, 1, 1000000);
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
		opts->keepalive_s = count(state, "--keepalive", arg, 0, 86400);
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

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct steer_opts *opts = state->input;

	switch (key) {
	case OPT_QUEUE:
		opts->queue = count(state, "--queue", arg, 0, 2000000);
		return 0;
	case OPT_QUEUE_TIMEOUT:
		opts->queue_timeout_ns =
			timeout(state, "--queue-timeout", arg, S / 100);
		return 0;
	case OPT_RETRIES:
		opts->retries = count(state, "--retries", arg, 0, 63);
		return 0;
	case OPT_RETRY_BUDGET:
		opts->retry_percent =
			count(state, "--retry-budget", arg, 0, 6300);
		return 0;
	case OPT_EJECT_AFTER:
		opts->eject_after =
			count(state, "--eject-after", arg, 0, 1000000);
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

const struct argp steer_opts_argp = {.options = options, .parser = parse};
