/*
 * The options that all appliances share. Command lines as a whole and
 * configuration files are read in program/config.c.
 */
#include "netstack/program/capture.h"
#include "netstack/program/exception_rule.h"
#include "netstack/program/log.h"
#include "netstack/program/privileges.h"
#include "netstack/program/program.h"

#include <coronet/net_reload.h>

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "netstack/options/opt.h"

/* A socket's path, with a NUL (unix(7)). */
#define NET_CONTROL_PATH_MAX 107u
#define MAX_LCORE	     1024u /* as many CPUs as Linux's masks of them have */
#define MAX_CONNS	     4000000
#define KIB(n)		     (UINT64_C(n) << 10)
#define FIRST_KEY	     0x1000
#define LINK_KEY	     FIRST_KEY /* of the first row */

#define AT(member) OPT_AT(struct net_opts, member)

/* ---- values that no kind of option covers ---- */

static int read_link(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	struct net_opts *opts = base;
	struct glue_link link;
	char reason[sizeof(error->text)];

	if (opts->n_links == NET_MAX_LINKS)
		return opt_expect(error, "at most %d links", NET_MAX_LINKS);
	if (glue_link_parse(text, &link, reason, sizeof(reason)) < 0)
		return opt_fail(error, "--%s", reason);
	opts->links[opts->n_links++] = text;
	return 0;
}

/* DHCP leases one address for a link, and SLAAC forms all that there are. */
static bool has_leased(const struct net_opts *opts, uint8_t link,
		       uint8_t family)
{
	for (unsigned i = 0; i < opts->n_addrs; i++)
		if (opts->addr_links[i] == link &&
		    opts->addrs[i].family == family &&
		    opts->addrs[i].prefix_len == 0)
			return true;
	return false;
}

static int read_addr(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	uint8_t link = 0;
	struct net_opts *opts = base;
	struct net_addr addr = {0}; /* dhcp: 0.0.0.0/0; auto: ::/0 */

	if (opts->n_links)
		link = (uint8_t)(opts->n_links - 1);
	if (strcmp(text, "dhcp") == 0 || strcmp(text, "auto") == 0) {
		addr.family = *text == 'd' ? 4 : 6;
		if (has_leased(opts, link, addr.family))
			return opt_expect(error, "%s once per link", text);
	} else if (net_addr_parse_prefix(text, &addr) < 0 ||
		   !(net_addr_is_host(&addr) || net_addr_is_loopback(&addr))) {
		return -EINVAL;
	}
	if (opts->n_addrs == NET_MAX_ADDRS)
		return opt_expect(error, "at most %d addresses", NET_MAX_ADDRS);
	opts->addr_links[opts->n_addrs] = link;
	opts->addrs[opts->n_addrs++] = addr;
	return 0;
}

static int read_exception(const struct opt *opt, const char *text, void *base,
			  struct opt_error *error)
{
	struct net_opts *opts = base;
	unsigned link = opts->n_links ? opts->n_links - 1 : 0;
	struct net_exception_rule rule;

	if (opts->exceptions[link])
		return opt_expect(error, "one per link");
	if (net_exception_parse(text, &rule, error->text, sizeof(error->text)) <
	    0)
		return -EINVAL;
	opts->exceptions[link] = text;
	return 0;
}

static int read_capture(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	struct net_capture capture;
	char *copy = strdup(text), reason[256];
	int err;

	if (!copy)
		return opt_expect(error, "more memory");
	err = net_capture_parse(copy, &capture, reason, sizeof(reason));
	free(copy);
	if (err < 0)
		return opt_fail(error, "--capture '%.200s': %s", text, reason);
	((struct net_opts *)base)->capture = text;
	return 0;
}

static int read_log_level(const struct opt *opt, const char *text, void *base,
			  struct opt_error *error)
{
	char reason[300];

	if (net_log_check_levels(text, reason, sizeof(reason)) < 0)
		return opt_fail(error, "--log-level '%.150s': %s", text,
				reason);
	((struct net_opts *)base)->log_level = text;
	return 0;
}

static int read_log_to(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error)
{
	int err = net_log_check_to(text);

	if (err < 0)
		return opt_expect(error,
				  "stderr, journal or a file that can be "
				  "written (%s)",
				  strerror(-err));
	((struct net_opts *)base)->log_to = text;
	return 0;
}

static int read_gateway(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	struct net_opts *opts = base;
	struct net_addr addr;

	if (net_addr_parse(text, 0, &addr) < 0 || addr.port ||
	    !net_addr_is_host(&addr))
		return -EINVAL;
	*(addr.family == 4 ? &opts->gateway4 : &opts->gateway6) = addr;
	return 0;
}

static int read_resolver(const struct opt *opt, const char *text, void *base,
			 struct opt_error *error)
{
	struct net_opts *opts = base;
	char one[NET_ADDR_TEXT_MAX];
	size_t len;

	opts->n_resolvers = 0; /* the last of several options replaces them */
	for (;; text += len + 1) {
		struct net_addr *addr = &opts->resolvers[opts->n_resolvers];

		len = strcspn(text, ",");
		if (opts->n_resolvers == NET_MAX_RESOLVERS)
			return opt_expect(error, "at most %d addresses",
					  NET_MAX_RESOLVERS);
		if (len >= sizeof(one))
			return -EINVAL;
		memcpy(one, text, len);
		one[len] = '\0';
		if (net_addr_parse(one, 53, addr) < 0 ||
		    !net_addr_is_host(addr))
			return -EINVAL;
		opts->n_resolvers++;
		if (text[len] == '\0')
			return 0;
	}
}

static int read_route(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	struct net_opts *opts = base;
	char reason[200];

	if (opts->n_routes == NET_MAX_ROUTES)
		return opt_expect(error, "at most %d routes", NET_MAX_ROUTES);
	if (net_route_parse(text, &opts->routes[opts->n_routes], reason,
			    sizeof(reason)) < 0)
		return opt_fail(error, "--route '%.200s': %s", text, reason);
	opts->n_routes++;
	return 0;
}

static int read_control(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	if (!*text || strlen(text) > NET_CONTROL_PATH_MAX)
		return opt_expect(error,
				  "the path of a socket, of %u bytes at most, "
				  "or off",
				  NET_CONTROL_PATH_MAX);
	((struct net_opts *)base)->control = text;
	return 0;
}

static int read_lease_dir(const struct opt *opt, const char *text, void *base,
			  struct opt_error *error)
{
	struct stat st;

	if (strcmp(text, "off") != 0 &&
	    (stat(text, &st) < 0 || !S_ISDIR(st.st_mode)))
		return -EINVAL;
	((struct net_opts *)base)->lease_dir = text;
	return 0;
}

static int read_user(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	char expected[sizeof(error->text)];
	struct net_user user;

	if (net_user_parse(text, &user, expected, sizeof(expected)) < 0)
		return opt_expect(error, "%s", expected);
	((struct net_opts *)base)->user = text;
	return 0;
}

static int read_metrics(const struct opt *opt, const char *text, void *base,
			struct opt_error *error)
{
	return net_addr_parse(text, -1, &((struct net_opts *)base)->metrics);
}

/* The prefix becomes a part of files' names. */
static int read_dpdk_prefix(const struct opt *opt, const char *text, void *base,
			    struct opt_error *error)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz"
				  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");

	if (len == 0 || len > 32 || text[len] != '\0' || text[0] == '.')
		return -EINVAL;
	((struct net_opts *)base)->dpdk_prefix = text;
	return 0;
}

static int add_lcores(void *base, uint64_t first, uint64_t last,
		      struct opt_error *error)
{
	struct net_opts *opts = base;

	for (; first <= last; first++) {
		for (unsigned i = 0; i < opts->n_lcores; i++)
			if (opts->lcores[i] == (int)first)
				return opt_expect(error,
						  "each CPU once, but CPU %ju "
						  "is named twice",
						  (uintmax_t)first);
		if (opts->n_lcores == NET_MAX_SHARDS)
			return opt_expect(error,
					  "at most %d CPUs, one for each shard",
					  NET_MAX_SHARDS);
		opts->lcores[opts->n_lcores++] = (int)first;
	}
	return 0;
}

/* The last of several options replaces the others. */
static int read_lcores(const struct opt *opt, const char *text, void *base,
		       struct opt_error *error)
{
	((struct net_opts *)base)->n_lcores = 0;
	return opt_parse_ranges(text, ',', 0, MAX_LCORE - 1, add_lcores, base,
				error);
}

static int read_lcore(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	uint64_t cpu;

	if (opt_parse_number(text, 0, MAX_LCORE - 1, &cpu) < 0)
		return opt_expect(error, "a CPU from 0 to %u", MAX_LCORE - 1);
	((struct net_opts *)base)->n_lcores = 0;
	return add_lcores(base, cpu, cpu, error);
}

static int refuse_config(const struct opt *opt, const char *text, void *base,
			 struct opt_error *error)
{
	return opt_fail(error, "--config must be given as --config FILE");
}

/* ---- the table ---- */

static const struct opt rows[] = {
	{"link", OPT_CUSTOM, .arg = "KIND:NAME[,KEY=VALUE...]",
	 .read = read_link, .example = "tap:cn0",
	 .help = "A NIC: memif:PATH, tap:NAME, vhost:PATH, af_packet:IFACE, "
		 "af_xdp:IFACE, pci:ADDRESS, port:NAME, bond:NAME, ring:NAME "
		 "or pcap:IN,OUT; keys " GLUE_LINK_KEYS
		 " (repeatable). --link list prints the cards and interfaces "
		 "of this machine",
	 .group = 1},
	{"addr", OPT_CUSTOM, .arg = "ADDRESS/BITS|dhcp|auto", .read = read_addr,
	 .expected = "a host's address and the bits of its network, dhcp or "
		     "auto",
	 .example = "10.9.0.1/16 or --addr fd00::1/64",
	 .help = "An address of the stack, as in 10.9.0.1/16 or fd00::1/64, on "
		 "the --link before it (repeatable). A loopback address, as in "
		 "127.0.0.1/8 or ::1/128, connects within the program; dhcp: "
		 "an IPv4 address that a DHCP server leases for that link, "
		 "with its routers and name servers; auto: IPv6 addresses of "
		 "the prefixes that routers on that link advertise, with "
		 "their routes and name servers"},
	{"exception", OPT_CUSTOM, .arg = "tap:NAME[,KEY=VALUE...]",
	 .read = read_exception, .example = "tap:kern0",
	 .help = "Pass frames that are not for the stack to the kernel through "
		 "this interface, which gets the MAC address and the IP "
		 "addresses of the --link before it; keys tcp=, udp=, echo=, "
		 "other=, addr=, "
		 "rate="},
	{"gateway", OPT_CUSTOM, .arg = "ADDRESS", .read = read_gateway,
	 .expected = "the address of a host",
	 .example = "10.9.0.254 or --gateway fd00::fe",
	 .help = "Router for other networks, at most one for IPv4 and one for "
		 "IPv6"},
	{"resolver", OPT_CUSTOM, .arg = "ADDRESS[,ADDRESS...]",
	 .read = read_resolver, .expected = "addresses of name servers",
	 .example = "10.9.0.53 or --resolver 10.9.0.53,[fd00::53]:5353",
	 .help = "Name servers that the stack asks for host names, each with "
		 "an optional port (default: those that --addr dhcp and auto "
		 "find, or else those of /etc/resolv.conf)"},
	{"lease-dir", OPT_CUSTOM, .arg = "DIRECTORY|off",
	 .read = read_lease_dir, .expected = "a directory that exists, or off",
	 .example = "/var/lib/coronet",
	 .help = "Keep the addresses of --addr dhcp, and the secret of those "
		 "of --addr auto, in this directory for the next start "
		 "(default: $STATE_DIRECTORY, if that is set)"},
	{"route", OPT_CUSTOM,
	 .arg = "PREFIX via GATEWAY [dev LINK] [src ADDRESS]",
	 .read = read_route, .example = "'10.0.0.0/8 via 10.9.0.253'",
	 .help = "Router for one network, in one argument, as in '10.0.0.0/8 "
		 "via 10.9.0.253' (repeatable). The longest PREFIX decides. "
		 "LINK: the number of a --link, if there are several; src: the "
		 "address to connect from"},
	{"mtu", OPT_NUMBER, AT(mtu), "BYTES", "1500", GLUE_MTU_MIN,
	 GLUE_MTU_MAX, .help = "Largest IP packet, {min} to {max}"},
	{"dad", OPT_CHOICE, AT(dad_off), "on|off", "on",
	 .help = "Duplicate address detection: withdraw an address if another "
		 "host answers for it within a second after it comes up"},
	{"pmtud", OPT_CHOICE, AT(pmtud_off), "on|off", "on",
	 .help = "Path MTU discovery: send IPv4 packets with the DF bit"},
	{"timestamps", OPT_CHOICE, AT(timestamps_off), "on|off", "on",
	 .help = "Use TCP timestamps (RFC 7323) with peers that offer them"},
	{"ecn", OPT_CHOICE, AT(ecn), "accept|on|off", "accept",
	 .help = "Explicit congestion notification (RFC 3168). accept: use it "
		 "when a peer asks; on: also ask for it when connecting; off: "
		 "never use it"},
	{"predict", OPT_CHOICE, AT(predict_off), "on|off", "on",
	 .help = "Process expected segments in a fast path; off is for tests "
		 "and debugging"},
	{"lcores", OPT_CUSTOM, .arg = "CPU[-CPU][,...]", .read = read_lcores,
	 .example = "2-5,8",
	 .help = "Run one shard (a thread with its own stack) on each of these "
		 "CPUs, as in 2-5,8"},
	{"lcore", OPT_CUSTOM, .arg = "CPU", .read = read_lcore, .example = "0",
	 .help = "Run one shard on this CPU"},
	{"shards", OPT_NUMBER, AT(shards), "N", NULL, 1, NET_MAX_SHARDS,
	 .help = "Number of shards (default: one per CPU of --lcores, "
		 "otherwise one)"},
	{"poll", OPT_CHOICE, AT(poll), "busy|adaptive", NULL, NET_POLL_BUSY,
	 .help = "busy: poll without a pause; adaptive: sleep when idle "
		 "(default: adaptive on a machine with one or two CPUs, busy "
		 "on others)"},
	{"stats", OPT_SECONDS_FP, AT(stats_s), "SECONDS", NULL,
	 OPT_NS_PER_S / 10, OPT_DAY_NS,
	 .help = "Log statistics at this interval (default: never)"},
	{"huge", OPT_CHOICE, AT(huge_off), "auto|off", "auto",
	 .help = "Use hugepages when they are available"},
	{"dpdk-prefix", OPT_CUSTOM, .arg = "NAME", .read = read_dpdk_prefix,
	 .expected = "a name of at most 32 letters, digits, '_', '-' and '.'",
	 .example = "coronet",
	 .help = "Let dpdk-dumpcap --file-prefix=NAME attach; this needs "
		 "hugepages and a mounted hugetlbfs"},
	{"max-conns", OPT_NUMBER, AT(max_conns), "N", "1048576", 1, MAX_CONNS,
	 .help = "Maximum number of connections"},
	{"counted-conns", OPT_NUMBER, AT(counted_conns), "N", "8192", 0,
	 MAX_CONNS,
	 .help = "Maximum number of connections for which statistics are kept"},
	{"trace-conns", OPT_NUMBER, AT(trace_conns), "N", "0", 0, 100000,
	 .help = "Number of connections whose last 64 events are kept for "
		 "coronet-ctl trace, {min} to {max} (default {default}: events "
		 "are kept only while coronet-ctl trace watches a connection)"},
	{"memory", OPT_SIZE, AT(memory_bytes), "SIZE", NULL, KIB(1024),
	 UINT64_C(1) << 46,
	 .help = "Memory limit of the process, hugepages included, as in 256M "
		 "or 2G (default: a quarter of the machine's memory)",
	 .example = "256M"},
	{"rmem-max", OPT_SIZE, AT(rmem_max), "SIZE", "6M", KIB(256),
	 KIB(1 << 20),
	 .help = "Largest receive window of a connection, from {min} to {max} "
		 "(default {default}); windows grow as the round trip "
		 "requires"},
	{"wmem-max", OPT_SIZE, AT(wmem_max), "SIZE", "4M", KIB(256),
	 KIB(64 << 10),
	 .help = "Largest send buffer of a connection, from {min} to {max} "
		 "(default {default}); buffers grow with the congestion "
		 "window"},
	{"cc", OPT_WORD, AT(cc), "cubic|reno|bbr", "cubic",
	 .help = "Congestion control"},
	{"check", OPT_FLAG, AT(check),
	 .help = "Check all options and the files they name, as far as no link "
		 "is needed, and exit with status 0 or 2"},
	{"user", OPT_CUSTOM, .arg = "NAME[:GROUP]", .read = read_user,
	 .example = "www-data",
	 .help = "Run as this user, not as root, once links, files and sockets "
		 "are open, with the capabilities alone that a link still "
		 "needs. GROUP: instead of the user's main group"},
	{"seccomp", OPT_CHOICE, AT(seccomp), "off|log|kill", "off",
	 .help = "Allow only the system calls that a running program needs; "
		 "log: the kernel logs others; kill: they end the program"},
	{"watchdog", OPT_NUMBER, AT(watchdog_ms), "MS", "1000", 0, 3600000,
	 .help = "Log the name of a coroutine that blocks its shard for this "
		 "long; 0: never"},
	{"control", OPT_CUSTOM, .arg = "PATH|off", .read = read_control,
	 .example = "/run/coronet/dpdk_telemetry.v2",
	 .help = "Socket for coronet-ctl and dpdk-telemetry.py (default: in "
		 "$RUNTIME_DIRECTORY, if that is set)"},
	{"metrics", OPT_CUSTOM, .arg = "ADDRESS:PORT", .read = read_metrics,
	 .expected = "an address of the kernel or of --addr, and a port",
	 .example = "127.0.0.1:9464",
	 .help = "Serve Prometheus metrics over HTTP at /metrics, on an "
		 "address of the kernel, as in 127.0.0.1:9464, or of --addr"},
	{"capture", OPT_CUSTOM, .arg = "FILE[,KEY=VALUE...]",
	 .read = read_capture, .example = "/tmp/a.pcapng",
	 .help = "Write the packets of all links to FILE in pcapng format; "
		 "keys bytes=, packets=, snap= and, as the last one, "
		 "filter=EXPRESSION in tcpdump's syntax"},
	{"log-level", OPT_CUSTOM, .arg = "[COMPONENT=]LEVEL[,...]",
	 .read = read_log_level, .example = "notice",
	 .help = "Log messages up to LEVEL: emergency, alert, critical, error, "
		 "warning, notice (default), info or debug. COMPONENT is a "
		 "name that coronet-ctl log.level lists, or a pattern, as in "
		 "coronet.conn=info or pmd.*=debug (default coronet.*)"},
	{"log-to", OPT_CUSTOM, .arg = "stderr|journal|FILE",
	 .read = read_log_to, .example = "stderr",
	 .help = "Log to stderr (default), to stderr with journald's "
		 "priorities, or to FILE, which is reopened on SIGUSR1"},
	{"config", OPT_CUSTOM, .arg = "FILE", .read = refuse_config,
	 .help = "Read options from FILE, one \"name = value\" per line"},
};

OPT_SET(common_opts, rows, FIRST_KEY, NULL)

void net_opts_init(struct net_opts *opts)
{
	*opts = (struct net_opts){.max_shards = 1};
	opt_set_defaults(rows, OPT_COUNT(rows), opts);
}

int net_opts_set(struct net_opts *opts, const char *name, const char *value)
{
	struct opt_error error;
	int err = opt_try(&common_opts, name, value ? value : "", "", opts,
			  &error);

	if (err == -EINVAL)
		snprintf(opts->error, sizeof(opts->error), "%s", error.text);
	return err;
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	if (key == LINK_KEY && strcmp(arg, "list") == 0 &&
	    !*net_config_place(state, "link"))
		exit(glue_port_list("", stdout) < 0);
	return common_opts_parse(key, arg, state);
}

const struct argp net_argp = {.options = common_opts_options,
			      .parser = parse_key,
			      .help_filter = common_opts_help};
