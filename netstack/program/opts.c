/*
 * The options that all appliances share. Command lines as a whole and
 * configuration files are read in program/config.c.
 */
#include "netstack/program/capture.h"
#include "netstack/program/exception_rule.h"
#include "netstack/program/log.h"
#include "netstack/program/program.h"

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A socket's path, with a NUL (unix(7)). */
#define NET_CONTROL_PATH_MAX 107u
#define MAX_LCORE	     1024u /* as many CPUs as Linux's masks of them have */

void net_opts_init(struct net_opts *opts)
{
	*opts = (struct net_opts){.mtu = 1500,
				  .max_shards = 1,
				  .max_conns = 1 << 20,
				  .counted_conns = 1 << 13,
				  .watchdog_ms = 1000};
}

enum {
	OPT_LINK = 0x1000,
	OPT_ADDR,
	OPT_EXCEPTION,
	OPT_GATEWAY,
	OPT_MTU,
	OPT_LCORE,
	OPT_LCORES,
	OPT_SHARDS,
	OPT_POLL,
	OPT_STATS,
	OPT_HUGE,
	OPT_DPDK_PREFIX,
	OPT_PMTUD,
	OPT_MAX_CONNS,
	OPT_COUNTED_CONNS,
	OPT_TRACE_CONNS,
	OPT_MEMORY,
	OPT_RMEM_MAX,
	OPT_WMEM_MAX,
	OPT_WATCHDOG,
	OPT_CAPTURE,
	OPT_LOG_LEVEL,
	OPT_LOG_TO,
	OPT_PREDICT,
	OPT_TIMESTAMPS,
	OPT_ECN,
	OPT_CC,
	OPT_CONTROL,
	OPT_METRICS,
	OPT_CONFIG
};

static const struct argp_option options[] = {
	{"link", OPT_LINK, "KIND:NAME[,KEY=VALUE...]", 0,
	 "The NIC: memif:PATH, tap:NAME, vhost:PATH, af_packet:IFACE, "
	 "af_xdp:IFACE, pci:ADDRESS, port:NAME, bond:NAME, ring:NAME or "
	 "pcap:IN,OUT; keys role=, mode=, members=, queue=, queues=, vlan=, "
	 "csum=, tso=, mac= "
	 "(repeatable); list prints what this machine has",
	 1},
	{"addr", OPT_ADDR, "ADDRESS/BITS", 0,
	 "An address of the stack, as in 10.9.0.1/16 or fd00::1/64, on the "
	 "--link before it (repeatable)",
	 1},
	{"exception", OPT_EXCEPTION, "tap:NAME[,KEY=VALUE...]", 0,
	 "Pass frames that are not for the stack to the kernel through this "
	 "interface, which gets the MAC and the addresses of the --link before "
	 "it; keys tcp=, udp=, echo=, other=, addr=, rate=",
	 1},
	{"gateway", OPT_GATEWAY, "ADDRESS", 0,
	 "Router for other networks; one of each IP version may be given", 1},
	{"mtu", OPT_MTU, "BYTES", 0,
	 "Largest IP packet, 576 to 9000 (default 1500)", 1},
	{"pmtud", OPT_PMTUD, "on|off", 0,
	 "Path MTU discovery: send IPv4 packets with DF (default on)", 1},
	{"timestamps", OPT_TIMESTAMPS, "on|off", 0,
	 "Use TCP timestamps (RFC 7323) with peers that offer them (default "
	 "on)",
	 1},
	{"ecn", OPT_ECN, "off|accept|on", 0,
	 "Explicit congestion notification (RFC 3168): never use it, use it "
	 "when a peer asks (default accept), or also ask for it when "
	 "connecting",
	 1},
	{"predict", OPT_PREDICT, "on|off", 0,
	 "Use header prediction (default on)", 1},
	{"lcores", OPT_LCORES, "CPU[-CPU][,...]", 0,
	 "Run one shard, a thread with its own stack, on each of these CPUs, "
	 "as in 2-5,8",
	 1},
	{"lcore", OPT_LCORE, "CPU", 0, "Run one shard on this CPU", 1},
	{"shards", OPT_SHARDS, "N", 0,
	 "Number of shards (default: one per CPU of --lcores, otherwise one)",
	 1},
	{"poll", OPT_POLL, "busy|adaptive", 0,
	 "Poll without a pause, or sleep when idle (default: adaptive on one "
	 "or two CPUs, busy on more)",
	 1},
	{"stats", OPT_STATS, "SECONDS", 0,
	 "Log statistics at this interval (default: never)", 1},
	{"huge", OPT_HUGE, "auto|off", 0,
	 "Use hugepages when they are available (default auto)", 1},
	{"dpdk-prefix", OPT_DPDK_PREFIX, "NAME", 0,
	 "Let dpdk-dumpcap --file-prefix=NAME attach; uses hugepages of a "
	 "mounted hugetlbfs",
	 1},
	{"max-conns", OPT_MAX_CONNS, "N", 0,
	 "Maximum number of connections (default 1048576)", 1},
	{"counted-conns", OPT_COUNTED_CONNS, "N", 0,
	 "Maximum number of connections that have statistics of their own "
	 "(default 8192)",
	 1},
	{"trace-conns", OPT_TRACE_CONNS, "N", 0,
	 "Number of connections whose last 64 events are kept for coronet-ctl "
	 "trace, 0 to 100000 (default 0: only connections that it watches)",
	 1},
	{"memory", OPT_MEMORY, "SIZE", 0,
	 "Memory limit of the process, hugepages included, as in 256M or 2G "
	 "(default: a quarter of the machine's memory)",
	 1},
	{"rmem-max", OPT_RMEM_MAX, "SIZE", 0,
	 "Largest receive window of a connection, from 256K to 1G (default "
	 "6M); windows grow as the round trip requires",
	 1},
	{"wmem-max", OPT_WMEM_MAX, "SIZE", 0,
	 "Largest send buffer of a connection, from 256K to 64M (default 4M); "
	 "buffers grow with the congestion window",
	 1},
	{"cc", OPT_CC, "cubic|reno|bbr", 0,
	 "Congestion control (default cubic)", 1},
	{"watchdog", OPT_WATCHDOG, "MS", 0,
	 "Log the name of a coroutine that blocks its shard this long; 0: "
	 "never (default 1000)",
	 1},
	{"control", OPT_CONTROL, "PATH|off", 0,
	 "Socket for coronet-ctl and dpdk-telemetry.py (default: in "
	 "$RUNTIME_DIRECTORY, if that is set)",
	 1},
	{"metrics", OPT_METRICS, "ADDRESS:PORT", 0,
	 "Serve Prometheus metrics over HTTP at /metrics, on an address of the "
	 "kernel, as in 127.0.0.1:9464, or of --addr",
	 1},
	{"capture", OPT_CAPTURE, "FILE[,KEY=VALUE...]", 0,
	 "Write the packets of all links to FILE in pcapng format; keys "
	 "bytes=, packets=, snap= and, last, filter=EXPRESSION in tcpdump's "
	 "syntax",
	 1},
	{"log-level", OPT_LOG_LEVEL, "[COMPONENT=]LEVEL[,...]", 0,
	 "Log messages up to LEVEL: emergency, alert, critical, error, "
	 "warning, notice (default), info or debug. COMPONENT is a name that "
	 "coronet-ctl log.level lists, or a pattern, as in coronet.conn=info "
	 "or pmd.*=debug (default coronet.*)",
	 1},
	{"log-to", OPT_LOG_TO, "stderr|journal|FILE", 0,
	 "Log to stderr (default), to stderr with journald's priorities, or to "
	 "FILE, which is reopened on SIGUSR1",
	 1},
	{"config", OPT_CONFIG, "FILE", 0,
	 "Read options from FILE, one \"name = value\" per line", 1},
	{0},
};

__attribute__((format(printf, 2, 3))) static int refuse(struct net_opts *opts,
							const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(opts->error, sizeof(opts->error), format, ap);
	va_end(ap);
	return -EINVAL;
}

static int parse_long(const char *text, long min, long max, long *out)
{
	char *end;

	errno = 0;
	*out = strtol(text, &end, 10);
	if (end == text || *end || errno || *out < min || *out > max ||
	    *text == ' ' || *text == '+')
		return -EINVAL;
	return 0;
}

static int take_link(struct net_opts *opts, const char *text)
{
	struct glue_link link;

	if (opts->n_links == NET_MAX_LINKS)
		return refuse(opts, "--link %s: at most %d links", text,
			      NET_MAX_LINKS);
	if (glue_link_parse(text, &link, opts->error, sizeof(opts->error)) < 0)
		return -EINVAL;
	opts->links[opts->n_links++] = text;
	return 0;
}

/* An address one host can have: not zero, a group's or (IPv4) loopback. */
static bool is_host(const struct net_addr *addr)
{
	static const uint8_t any[16];

	if (addr->family == 6)
		return addr->ip[0] != 0xff && memcmp(addr->ip, any, 16) != 0;
	return addr->ip[0] != 0 && addr->ip[0] != 127 && addr->ip[0] < 224;
}

static int take_addr(struct net_opts *opts, const char *text)
{
	struct net_addr addr;

	if (net_addr_parse_prefix(text, &addr) < 0 || !is_host(&addr))
		return refuse(opts,
			      "--addr '%s': expected a host's address and "
			      "the bits of its network, as in 10.9.0.1/16 or "
			      "fd00::1/64",
			      text);
	if (opts->n_addrs == NET_MAX_ADDRS)
		return refuse(opts, "--addr %s: at most %d addresses", text,
			      NET_MAX_ADDRS);
	opts->addr_links[opts->n_addrs] =
		opts->n_links ? (uint8_t)(opts->n_links - 1) : 0;
	opts->addrs[opts->n_addrs++] = addr;
	return 0;
}

static int take_exception(struct net_opts *opts, const char *text)
{
	unsigned link = opts->n_links ? opts->n_links - 1 : 0;
	struct net_exception_rule rule;

	if (opts->exceptions[link])
		return refuse(opts,
			      "--exception '%s': the link has one already",
			      text);
	if (net_exception_parse(text, &rule, opts->error, sizeof(opts->error)) <
	    0)
		return -EINVAL;
	opts->exceptions[link] = text;
	return 0;
}

static int take_capture(struct net_opts *opts, const char *text)
{
	struct net_capture capture;
	char *copy = strdup(text), reason[256];
	int err;

	if (!copy)
		return refuse(opts, "--capture: no memory");
	err = net_capture_parse(copy, &capture, reason, sizeof(reason));
	free(copy);
	if (err < 0)
		return refuse(opts, "--capture '%s': %s", text, reason);
	opts->capture = text;
	return 0;
}

static int take_log_level(struct net_opts *opts, const char *text)
{
	char reason[300];

	if (net_log_check_levels(text, reason, sizeof(reason)) < 0)
		return refuse(opts, "--log-level '%.150s': %s", text, reason);
	opts->log_level = text;
	return 0;
}

static int take_log_to(struct net_opts *opts, const char *text)
{
	int err = net_log_check_to(text);

	if (err < 0)
		return refuse(opts,
			      "--log-to '%.200s': %s: expected stderr, journal "
			      "or a file that can be written",
			      text, strerror(-err));
	opts->log_to = text;
	return 0;
}

static int take_gateway(struct net_opts *opts, const char *text)
{
	struct net_addr addr;

	if (net_addr_parse(text, 0, &addr) < 0 || addr.port || !is_host(&addr))
		return refuse(opts,
			      "--gateway '%s': expected an address, as in "
			      "10.9.0.254 or fd00::fe",
			      text);
	*(addr.family == 4 ? &opts->gateway4 : &opts->gateway6) = addr;
	return 0;
}

static int take_number(struct net_opts *opts, const char *name,
		       const char *text, long min, long max, long *out)
{
	if (parse_long(text, min, max, out) < 0)
		return refuse(opts,
			      "--%s '%s': expected a number from %ld to "
			      "%ld",
			      name, text, min, max);
	return 0;
}

static int take_poll(struct net_opts *opts, const char *text)
{
	if (strcmp(text, "busy") == 0)
		opts->poll = NET_POLL_BUSY;
	else if (strcmp(text, "adaptive") == 0)
		opts->poll = NET_POLL_ADAPTIVE;
	else
		return refuse(opts, "--poll '%s': expected busy or adaptive",
			      text);
	return 0;
}

static int take_stats(struct net_opts *opts, const char *text)
{
	double s = strtod(text, NULL);

	if (!*text || strspn(text, "0123456789.") != strlen(text) ||
	    strchr(text, '.') != strrchr(text, '.') || s < 0.1 || s > 86400)
		return refuse(opts,
			      "--stats '%s': expected seconds from 0.1 to "
			      "86400",
			      text);
	opts->stats_s = s;
	return 0;
}

static int take_switch(struct net_opts *opts, const char *name,
		       const char *text, bool *off)
{
	if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
		return refuse(opts, "--%s '%s': expected on or off", name,
			      text);
	*off = strcmp(text, "off") == 0;
	return 0;
}

static int take_cc(struct net_opts *opts, const char *text)
{
	if (strcmp(text, "cubic") != 0 && strcmp(text, "reno") != 0 &&
	    strcmp(text, "bbr") != 0)
		return refuse(opts, "--cc '%s': expected cubic, reno or bbr",
			      text);
	opts->cc = text;
	return 0;
}

static int take_ecn(struct net_opts *opts, const char *text)
{
	static const char *const names[] = {[NET_ECN_ACCEPT] = "accept",
					    [NET_ECN_ON] = "on",
					    [NET_ECN_OFF] = "off"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			opts->ecn = (enum net_ecn)i;
			return 0;
		}
	}
	return refuse(opts, "--ecn '%s': expected off, accept or on", text);
}

static int take_control(struct net_opts *opts, const char *text)
{
	if (!*text || strlen(text) > NET_CONTROL_PATH_MAX)
		return refuse(opts,
			      "--control '%s': expected the path of a socket, "
			      "of %u bytes at most, or off",
			      text, NET_CONTROL_PATH_MAX);
	opts->control = text;
	return 0;
}

static int take_metrics(struct net_opts *opts, const char *text)
{
	if (net_addr_parse(text, -1, &opts->metrics) < 0)
		return refuse(opts,
			      "--metrics '%s': expected an address of the "
			      "kernel's or of --addr and a port, as in "
			      "127.0.0.1:9464",
			      text);
	return 0;
}

static int take_huge(struct net_opts *opts, const char *text)
{
	opts->huge_off = strcmp(text, "off") == 0;
	if (!opts->huge_off && strcmp(text, "auto") != 0)
		return refuse(opts, "--huge '%s': expected auto or off", text);
	return 0;
}

/* The prefix becomes a part of files' names. */
static int take_dpdk_prefix(struct net_opts *opts, const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz"
				  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");

	if (len == 0 || len > 32 || text[len] != '\0' || text[0] == '.')
		return refuse(opts,
			      "--dpdk-prefix '%s': expected a name of at most "
			      "32 letters, digits, '_', '-' and '.', as in "
			      "coronet",
			      text);
	opts->dpdk_prefix = text;
	return 0;
}

/* "256M", "2G": a number and K, M or G, in bytes; 0: it is none. */
static uint64_t size_of(const char *text)
{
	static const char units[] = "KMG";
	size_t digits = strspn(text, "0123456789");
	const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;

	if (!digits || digits > 10 || !unit || text[digits + 1])
		return 0;
	return strtoull(text, NULL, 10) << (10 * (unit - units + 1));
}

static int take_rmem_max(struct net_opts *opts, const char *text)
{
	uint64_t n = size_of(text);

	if (n < (UINT64_C(256) << 10) || n > (UINT64_C(1) << 30))
		return refuse(opts,
			      "--rmem-max '%s': expected a size from 256K to "
			      "1G, as in 6M",
			      text);
	opts->rmem_max = n;
	return 0;
}

static int take_wmem_max(struct net_opts *opts, const char *text)
{
	uint64_t n = size_of(text);

	if (n < (UINT64_C(256) << 10) || n > (UINT64_C(64) << 20))
		return refuse(opts,
			      "--wmem-max '%s': expected a size from 256K to "
			      "64M, as in 4M",
			      text);
	opts->wmem_max = n;
	return 0;
}

static int take_memory(struct net_opts *opts, const char *text)
{
	uint64_t n = size_of(text);

	if (n < (UINT64_C(1) << 20) || n > (UINT64_C(1) << 46))
		return refuse(opts,
			      "--memory '%s': expected a size from 1M on, as "
			      "in 256M or 2G",
			      text);
	opts->memory_bytes = n;
	return 0;
}

static int refuse_lcores(struct net_opts *opts, const char *text,
			 const char *reason)
{
	return refuse(opts,
		      "--lcores '%s': %s: expected CPUs and ranges of them, as "
		      "in 2-5,8",
		      text, reason);
}

static int add_lcore(struct net_opts *opts, const char *text, unsigned long cpu)
{
	if (cpu >= MAX_LCORE)
		return refuse(opts, "--lcores '%s': CPU %lu: the last is %u",
			      text, cpu, MAX_LCORE - 1);
	for (unsigned i = 0; i < opts->n_lcores; i++)
		if (opts->lcores[i] == (int)cpu)
			return refuse(opts,
				      "--lcores '%s': CPU %lu stands there "
				      "twice",
				      text, cpu);
	if (opts->n_lcores == NET_MAX_SHARDS)
		return refuse(opts,
			      "--lcores '%s': more than %d CPUs, the most that "
			      "a program can have shards",
			      text, NET_MAX_SHARDS);
	opts->lcores[opts->n_lcores++] = (int)cpu;
	return 0;
}

/* Reads "2-5,8": the last of several options replaces the others. */
static int take_lcores(struct net_opts *opts, const char *text)
{
	const char *at = text;

	opts->n_lcores = 0;
	do {
		unsigned long first, last;
		char *end;

		if (*at < '0' || *at > '9')
			return refuse_lcores(opts, text,
					     "no CPU where one is "
					     "due");
		first = last = strtoul(at, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtoul(end + 1, &end, 10);
		if (*end && *end != ',')
			return refuse_lcores(opts, text,
					     "neither '-' nor ',' "
					     "after a CPU");
		if (last < first)
			return refuse_lcores(opts, text,
					     "a range that ends "
					     "before it begins");
		for (unsigned long cpu = first; cpu <= last; cpu++) {
			int err = add_lcore(opts, text, cpu);

			if (err < 0)
				return err;
		}
		at = *end ? end + 1 : NULL;
	} while (at);
	return 0;
}

static int take_option(struct net_opts *opts, int key, const char *text)
{
	long n;
	int err;

	switch (key) {
	case OPT_LINK:
		return take_link(opts, text);
	case OPT_ADDR:
		return take_addr(opts, text);
	case OPT_EXCEPTION:
		return take_exception(opts, text);
	case OPT_GATEWAY:
		return take_gateway(opts, text);
	case OPT_MTU:
		err = take_number(opts, "mtu", text, GLUE_MTU_MIN, GLUE_MTU_MAX,
				  &n);
		if (err == 0)
			opts->mtu = (unsigned)n;
		return err;
	case OPT_LCORE:
		err = take_number(opts, "lcore", text, 0, MAX_LCORE - 1, &n);
		if (err == 0) {
			opts->lcores[0] = (int)n;
			opts->n_lcores = 1;
		}
		return err;
	case OPT_LCORES:
		return take_lcores(opts, text);
	case OPT_SHARDS:
		err = take_number(opts, "shards", text, 1, NET_MAX_SHARDS, &n);
		if (err == 0)
			opts->shards = (unsigned)n;
		return err;
	case OPT_MAX_CONNS:
		err = take_number(opts, "max-conns", text, 1, 4000000, &n);
		if (err == 0)
			opts->max_conns = (unsigned)n;
		return err;
	case OPT_COUNTED_CONNS:
		err = take_number(opts, "counted-conns", text, 0, 4000000, &n);
		if (err == 0)
			opts->counted_conns = (unsigned)n;
		return err;
	case OPT_TRACE_CONNS:
		err = take_number(opts, "trace-conns", text, 0, 100000, &n);
		if (err == 0)
			opts->trace_conns = (unsigned)n;
		return err;
	case OPT_MEMORY:
		return take_memory(opts, text);
	case OPT_RMEM_MAX:
		return take_rmem_max(opts, text);
	case OPT_WMEM_MAX:
		return take_wmem_max(opts, text);
	case OPT_CAPTURE:
		return take_capture(opts, text);
	case OPT_LOG_LEVEL:
		return take_log_level(opts, text);
	case OPT_LOG_TO:
		return take_log_to(opts, text);
	case OPT_WATCHDOG:
		err = take_number(opts, "watchdog", text, 0, 3600000, &n);
		if (err == 0)
			opts->watchdog_ms = (unsigned)n;
		return err;
	case OPT_POLL:
		return take_poll(opts, text);
	case OPT_STATS:
		return take_stats(opts, text);
	case OPT_HUGE:
		return take_huge(opts, text);
	case OPT_DPDK_PREFIX:
		return take_dpdk_prefix(opts, text);
	case OPT_PMTUD:
		return take_switch(opts, "pmtud", text, &opts->pmtud_off);
	case OPT_ECN:
		return take_ecn(opts, text);
	case OPT_CC:
		return take_cc(opts, text);
	case OPT_CONTROL:
		return take_control(opts, text);
	case OPT_METRICS:
		return take_metrics(opts, text);
	case OPT_PREDICT:
		return take_switch(opts, "predict", text, &opts->predict_off);
	case OPT_TIMESTAMPS:
		return take_switch(opts, "timestamps", text,
				   &opts->timestamps_off);
	default:
		return refuse(opts, "--config must be given as --config FILE");
	}
}

static const char *name_of(int key)
{
	const struct argp_option *option = options;

	while (option->key != key)
		option++;
	return option->name;
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct net_opts *opts = state->input;

	if (key < OPT_LINK || key > OPT_CONFIG)
		return ARGP_ERR_UNKNOWN;
	if (key == OPT_LINK && strcmp(arg, "list") == 0 &&
	    !*net_config_place(state, "link"))
		exit(glue_port_list("", stdout) < 0);
	if (take_option(opts, key, arg) == 0)
		return 0;
	/* Not argp_failure(): a parent may have silenced argp's own stream. */
	fprintf(stderr, "%s: %s%s\n", state->name,
		net_config_place(state, name_of(key)), opts->error);
	exit(2);
}

const struct argp net_argp = {.options = options, .parser = parse_key};
