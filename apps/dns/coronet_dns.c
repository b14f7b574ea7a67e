/*
 * coronet-dns: an authoritative name server on coronet. This file has its
 * options, its start, the reload of zones and the shutdown; coronet_dns_serve.c
 * answers queries.
 */
#include "apps/dns/coronet_dns_priv.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common/coronet_shards.h"
#include "apps/common/log_signal.h"
#include "apps/common/opts.h"
#include "apps/common/readable.h"

struct dns dns;

/* Static, since the signal handler walks along those that were started. */
static struct dns_shard shards[NET_MAX_SHARDS];

/* ---- loading ---- */

/* Why the zones could not be loaded; not on a stack, as threads share it. */
static char load_error[ZONE_ERROR_MAX + 256];

static struct zone *load_zone(const struct dns_source *source)
{
	FILE *file = fopen(source->path, "re");
	char error[ZONE_ERROR_MAX];
	struct zone *zone = NULL;

	if (file) {
		zone = zone_load(source->name, file, error);
		fclose(file);
	} else {
		snprintf(error, sizeof(error), "%s", strerror(errno));
	}
	if (!zone)
		snprintf(load_error, sizeof(load_error),
			 "--zone '%.80s=%.120s': %.500s", source->name,
			 source->path, error);
	return zone;
}

/* Reads all zones, on any thread. Returns them, or NULL: see load_error. */
static void *load_zones(void *arg)
{
	struct zones *zones = calloc(1, sizeof(*zones));

	if (!zones)
		snprintf(load_error, sizeof(load_error), "out of memory");
	for (unsigned i = 0; zones && i < dns.n_sources; i++) {
		struct zone *zone = load_zone(&dns.sources[i]);

		if (zone && zones_add(zones, zone) == 0)
			continue;
		if (zone)
			snprintf(load_error, sizeof(load_error),
				 "--zone %.200s: given twice",
				 dns.sources[i].name);
		zone_free(zone);
		zones_free(zones);
		zones = NULL;
	}
	return zones;
}

/* Counts and logs what is served from now on. */
static void announce_zones(const struct zones *zones)
{
	uint64_t names = 0, records = 0;

	for (unsigned i = 0; i < zones->n; i++) {
		const struct zone *zone = zones->zone[i];

		names += zone->n_nodes;
		records += zone->n_records;
		net_log("dns: zone %s: serial %u, %u records",
			dns.sources[i].name, zone->serial, zone->n_records);
	}
	counters_set(&dns.loaded.names, names);
	counters_set(&dns.loaded.records, records);
}

/* ---- reloading ---- */

/* Zones that a shard may still use. */
static struct zones *old_zones;

/* Runs on each shard's thread, outside any coroutine. */
static void *use_zones(void *zones)
{
	shards[net_stack_shard(net_stack_here())].zones = zones;
	return NULL;
}

/* Passes the zones to all shards; less than 0: the program ends. */
static int replace_zones(struct zones *zones)
{
	int err;

	old_zones = dns.zones;
	dns.zones = zones;
	err = shards_call(use_zones, zones, 0);
	if (err < 0)
		return err;
	zones_free(old_zones);
	old_zones = NULL;
	return 0;
}

/* Reads the zones on another thread, while the shards answer. */
static int reload_zones(void)
{
	void *zones = NULL;
	int err = net_offload(load_zones, NULL, &zones, CORO_FOREVER);

	if (err == -ECANCELED)
		return err;
	if (err < 0 || !zones) {
		counters_add(&dns.loaded.failed_reloads, 1);
		net_log_at(NET_LOG_ERROR,
			   "dns: SIGHUP: %s; the zones are unchanged",
			   err < 0 ? strerror(-err) : load_error);
		return 0;
	}
	err = replace_zones(zones);
	if (err < 0)
		return err;
	counters_add(&dns.loaded.reloads, 1);
	announce_zones(zones);
	return 0;
}

/* Reloads the zones after each SIGHUP. Runs on the first shard. */
static void *await_hangups(void *arg)
{
	int err = 0;

	hangup_follow();
	while (err == 0) {
		if (hangup_take())
			err = reload_zones();
		else
			err = coro_park_until(CORO_FOREVER);
	}
	hangup_unfollow();
	return NULL;
}

/* ---- draining ---- */

static bool takes_clients(void *shard)
{
	return true;
}

/* Datagrams are answered until the stack stops. */
static void stop_listening(void *arg)
{
	struct dns_shard *shard = arg;

	dns_hurry(shard);
	shutdown_close_listeners(&shard->shutdown, &shard->listener, 1,
				 takes_clients);
	dns_hurry(shard); /* those that came last */
}

static unsigned clients_left(void *arg)
{
	const struct dns_shard *shard = arg;

	return (unsigned)shard->counters.clients;
}

static unsigned all_clients_left(void)
{
	struct dns_counters sum = {0};

	for (unsigned i = 0; i < net_stack_shards(net_stack_here()); i++)
		counters_sum(&sum, &shards[i].counters, sizeof(sum));
	return (unsigned)sum.clients;
}

/* ---- starting ---- */

#define AT(member)  OPT_AT(struct dns, member)
#define MIN_NS	    (OPT_NS_PER_S / 100)
#define CLIENTS_MAX 4000000

static int add_zone(const struct opt *opt, const char *text, void *base,
		    struct opt_error *error)
{
	const char *equals = strchr(text, '=');
	struct dns *to = base;

	if (!equals || equals == text || equals[1] == 0)
		return -EINVAL;
	if (to->n_sources == ZONES_MAX)
		return opt_expect(error, "at most %d zones", ZONES_MAX);
	if (!to->sources)
		to->sources = calloc(ZONES_MAX, sizeof(*to->sources));
	if (!to->sources)
		return opt_fail(error, "--zone: out of memory");
	to->sources[to->n_sources].name =
		strndup(text, (size_t)(equals - text));
	if (!to->sources[to->n_sources].name)
		return opt_fail(error, "--zone: out of memory");
	to->sources[to->n_sources++].path = equals + 1;
	return 0;
}

static const struct opt rows[] = {
	{"zone", OPT_CUSTOM, .arg = "NAME=FILE", .read = add_zone,
	 .expected = "the name of a zone and a file",
	 .example = "example.com=/etc/coronet/example.com.zone",
	 .help = "Serve this zone from a file in the format of RFC 1035 "
		 "(repeatable); SIGHUP reads the files again"},
	{"port", OPT_NUMBER, AT(port), "PORT", "53", 1, 65535,
	 .help = "Answer queries at this port, over UDP and TCP"},
	{"rate-limit", OPT_NUMBER, AT(rate_limit), "N", "0", 1, 1000000,
	 .or_zero = true, .example = "200",
	 .help = "Maximum number of answers a second over UDP to one IPv4 /24 "
		 "or IPv6 /56; 0: no limit"},
	{"rate-slip", OPT_NUMBER, AT(rate_slip), "N", "2", 0, 100,
	 .help = "With --rate-limit: one in N answers beyond the limit is sent "
		 "truncated, so that the client asks over TCP; the others are "
		 "dropped; 0: all are dropped"},
	{"idle-timeout", OPT_SECONDS, AT(idle_ns), "SECONDS", "10", MIN_NS,
	 OPT_DAY_NS,
	 .help = "Time that a TCP client has for its next query to arrive"},
	{"max-clients", OPT_NUMBER, AT(limits.clients), "N", "4096", 1,
	 CLIENTS_MAX,
	 .help = "Maximum number of TCP clients at a time; SYNs beyond it are "
		 "dropped, so that clients retry"},
	{"max-clients-per-source", OPT_NUMBER, AT(limits.clients_per_source),
	 "N", NULL, 1, CLIENTS_MAX, .example = "100",
	 .help = "Maximum number of TCP clients of one IPv4 address or IPv6 "
		 "/64 (default: half of --max-clients, at least 1024)"},
};

static int check_opts(void *base, struct opt_error *error)
{
	struct dns *to = base;

	if (to->n_sources == 0)
		return opt_refuse(error, "--zone", NULL,
				  "the name of a zone and a file",
				  "--zone example.com=/etc/coronet/zone");
	if (to->limits.clients_per_source == 0)
		to->limits.clients_per_source =
			opts_source_limit(to->limits.clients);
	return 0;
}

OPT_SET(dns_opts, rows, 0x2000, check_opts)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		state->child_inputs[0] = &dns.net;
		return 0;
	case ARGP_KEY_ARG:
		opt_refuse_argument(state, arg);
	default:
		return dns_opts_parse(key, arg, state);
	}
}

static void *serve_datagrams(void *shard)
{
	dns_serve_udp(shard);
	return NULL;
}

/* Runs on each shard's thread, outside any coroutine. Returns 0 or -errno. */
static void *listen_here(void *arg)
{
	const struct net_addr at = net_addr_any(dns.port);
	struct net_stack *stack = net_stack_here();
	struct dns_shard *shard = arg;
	int err;

	shard->stack = stack;
	shard->zones = dns.zones;
	err = net_udp_open(stack, &at, NULL, &shard->udp);
	if (err == 0)
		err = net_listen(stack, &at, 0, &shard->listener);
	if (err == 0)
		err = net_spawn(stack, "datagrams", serve_datagrams, shard);
	if (err < 0)
		return (void *)(intptr_t)err;
	net_listener_limit(shard->listener, &dns.limits);
	net_listener_serve(shard->listener, dns_serve_tcp, shard);
	return NULL;
}

/*
 * Runs on each shard's thread, once all shards listen: a signal handler may
 * wake any shard that has got so far, so none may close early because another
 * one failed.
 */
static void *await_signal_here(void *arg)
{
	struct dns_shard *shard = arg;

	return (void *)(intptr_t)shutdown_start(&shard->shutdown, &dns.shutdown,
						shard->stack, shard);
}

static int start_shards(struct net_stack *stack)
{
	const struct net_addr at = net_addr_any(dns.port);
	char text[NET_ADDR_TEXT_MAX];
	int err;

	net_addr_format(&at, text, sizeof(text));
	if (dns.rate_limit)
		dns.rate = source_rate_new(3, 7);
	if (dns.rate_limit && !dns.rate)
		return -ENOMEM;
	err = shards_call(listen_here, shards, sizeof(*shards));
	if (err < 0) {
		snprintf(dns.net.error, sizeof(dns.net.error),
			 "listening on %s: %s", text, strerror(-err));
		return err;
	}
	err = shards_call(await_signal_here, shards, sizeof(*shards));
	if (err == 0)
		err = dns_metrics_add(shards);
	if (err == 0)
		err = hangup_spawn("reload", await_hangups, NULL);
	if (err < 0)
		return err;
	announce_zones(dns.zones);
	for (unsigned i = 0; i < dns.n_sources; i++)
		readable_or_warn(&dns.net, "--zone", dns.sources[i].path);
	printf("listening on %s\n", text);
	fflush(stdout);
	return 0;
}

/* A net_start: the first shard starts all of them. */
static int start_shard(struct net_stack *stack, void *arg)
{
	int err = 0;

	if (net_stack_shard(stack) == 0)
		err = start_shards(stack);
	/* A signal that comes this early ends the program, and is no failure.
	 */
	return net_stack_stopping(stack) ? 0 : err;
}

static void free_all(void)
{
	free(dns.rate);
	zones_free(old_zones);
	zones_free(dns.zones);
	for (unsigned i = 0; i < dns.n_sources; i++)
		free(dns.sources[i].name);
	free(dns.sources);
}

int main(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{&net_argp, 0, "Common options:", 1}, {0}};
	static const struct argp argp = {
		.options = dns_opts_options,
		.parser = parse_key,
		.children = children,
		.help_filter = dns_opts_help,
		.doc = "Authoritative DNS server on coronet, for zones in "
		       "memory: DPDK, lwIP, UDP and TCP.\vWords after -- go to "
		       "DPDK's EAL.",
	};
	int err;

	/* Before the zones are read, which may take long. */
	hangup_catch();
	log_signal_catch();
	net_log_name("coronet.dns");
	dns = (struct dns){
		.shutdown = {.program = "coronet-dns",
			     .what = "TCP clients",
			     .timeout_ns = 5 * OPT_NS_PER_S,
			     .begin = stop_listening,
			     .left = clients_left,
			     .total = all_clients_left},
	};
	opt_set_defaults(rows, OPT_COUNT(rows), &dns);
	opts_set_version("coronet-dns");
	opt_use_place(net_config_place);
	net_opts_init(&dns.net);
	err = net_parse_args(&argp, argc, argv, &dns.net, &dns);
	if (err == 0) {
		dns.zones = load_zones(NULL);
		if (!dns.zones) {
			fprintf(stderr, "coronet-dns: %s\n", load_error);
			free_all();
			return OPT_EXIT_USAGE;
		}
		err = net_run(&dns.net, start_shard, NULL);
	}
	if (err < 0 && dns.net.error[0])
		fprintf(stderr, "coronet-dns: %s\n", dns.net.error);
	free_all();
	return net_exit_status(err);
}
