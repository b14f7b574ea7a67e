/*
 * coronet-ctl: queries and controls a running program over its control socket.
 * Every command is a row of the table below.
 */
#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coronet/net_stack.h>

#include "apps/common/opts.h"
#include "apps/ctl/coronet_ctl_priv.h"
#include "apps/ctl/ctl_print.h"

#define TRACE_LIMIT_MAX 1000000000

/* ---- columns of lists ---- */

static const struct ctl_column conn_columns[] = {
	{"STATE", "state", CTL_TEXT, -12},
	{"UNREAD", "unread", CTL_NUMBER, 7},
	{"UNSENT", "unsent", CTL_NUMBER, 7},
	{"LOCAL", "local", CTL_TEXT, -21},
	{"PEER", "peer", CTL_TEXT, -21},
	{"AGE", "age_ms", CTL_MS, 7},
	{"ID", "id", CTL_TEXT, -20},
	{"HANDLER", "handler", CTL_TEXT, -16},
	{"NAME", "name", CTL_TEXT, -10},
	{"WAITS", "waits", CTL_WAITS, -16},
	{0}};
static const struct ctl_column udp_columns[] = {
	{"SHARD", "shard", CTL_NUMBER, 5},
	{"QUEUED", "queued_bytes", CTL_NUMBER, 8},
	{"DROPS", "drops", CTL_NUMBER, 8},
	{"RX", "rx", CTL_NUMBER, 10},
	{"TX", "tx", CTL_NUMBER, 10},
	{"LOCAL", "local", CTL_TEXT, -21},
	{"PEER", "peer", CTL_TEXT, -21},
	{"READER", "reader", CTL_TEXT, -16},
	{0}};
static const struct ctl_column listener_columns[] = {
	{"SHARD", "shard", CTL_NUMBER, 5},
	{"LOCAL", "local", CTL_TEXT, -21},
	{"STATE", "state", CTL_TEXT, -9},
	{"CLIENTS", "clients", CTL_NUMBER, 7},
	{"PENDING", "pending", CTL_NUMBER, 7},
	{"QUEUED", "queued", CTL_NUMBER, 6},
	{"BACKLOG", "backlog", CTL_NUMBER, 7},
	{"CC", "cc", CTL_TEXT, -6},
	{"HANDLER", "handler", CTL_TEXT, -16},
	{0}};
static const struct ctl_column shard_columns[] = {
	{"SHARD", "shard", CTL_NUMBER, 5},
	{"CONNS", "conns", CTL_NUMBER, 8},
	{"HALF-OPEN", "half_open", CTL_NUMBER, 9},
	{"TIME-WAIT", "time_wait", CTL_NUMBER, 9},
	{"COROS", "coroutines", CTL_NUMBER, 8},
	{"READY", "ready", CTL_NUMBER, 6},
	{"ROUNDS", "rounds", CTL_NUMBER, 12},
	{"RX-FRAMES", "rx_frames", CTL_NUMBER, 12},
	{"TX-FRAMES", "tx_frames", CTL_NUMBER, 12},
	{"ACCEPTED", "accepted", CTL_NUMBER, 9},
	{"RESET", "reset", CTL_NUMBER, 7},
	{"TIMED-OUT", "timed_out", CTL_NUMBER, 9},
	{0}};
static const struct ctl_column coro_columns[] = {
	{"COROUTINE", "name", CTL_TEXT, -16},
	{"STATE", "state", CTL_TEXT, -9},
	{"IN", "in", CTL_TEXT, -18},
	{"STACK", "stack_bytes", CTL_NUMBER, 7},
	{"OF", "of", CTL_TEXT, -40},
	{0}};
static const struct ctl_column mem_columns[] = {
	{"SHARD", "shard", CTL_NUMBER, 5},
	{"USED", "used_bytes", CTL_BYTES, 8},
	{"BUDGET", "budget_bytes", CTL_BYTES, 8},
	{"SLABS", "slab_bytes", CTL_BYTES, 8},
	{"CONNS", "conn_bytes", CTL_BYTES, 8},
	{"COROS", "coroutine_bytes", CTL_BYTES, 8},
	{"LIVE", "coroutine_live_bytes", CTL_BYTES, 8},
	{"OUT-OF-ORDER", "out_of_order_pieces", CTL_NUMBER, 12},
	{"FRAMES", "frames", CTL_NUMBER, 7},
	{"FREE", "frames_free", CTL_NUMBER, 7},
	{"HELD", "frames_received_and_held", CTL_NUMBER, 7},
	{"SNDBUF", "send_buffer_max_bytes", CTL_BYTES, 8},
	{"RCVWND", "receive_window_max_bytes", CTL_BYTES, 8},
	{"FULL", "full", CTL_BOOL, -4},
	{0}};
static const struct ctl_column neigh_columns[] = {
	{"ADDRESS", "address", CTL_TEXT, -39},
	{"MAC", "mac", CTL_TEXT, -17},
	{"LINK", "link", CTL_NUMBER, 4},
	{"STATE", "state", CTL_TEXT, -10},
	{0}};
static const struct ctl_column route_columns[] = {
	{"TO", "to", CTL_TEXT, -43},
	{"VIA", "via", CTL_TEXT, -39},
	{"LINK", "link", CTL_NUMBER, 4},
	{"FROM", "from", CTL_TEXT, -39},
	{0}};

static const struct ctl_column addr_columns[] = {
	{"ADDRESS", "address", CTL_TEXT, -43},
	{"LINK", "link", CTL_NUMBER, 4},
	{"STATE", "state", CTL_TEXT, -10},
	{"LEASED UNTIL", "leased_until", CTL_TEXT, -20},
	{0}};

static const struct ctl_column exception_columns[] = {
	{"LINK", "link", CTL_NUMBER, 4},
	{"EXCEPTION", "exception", CTL_TEXT, -16},
	{0}};

/* ---- running ---- */

int ctl_fail(const struct ctl *ctl)
{
	fprintf(stderr, "coronet-ctl: %s\n", ctl->client.error);
	return 1;
}

static void print_row(const struct ctl *ctl, const struct command *command,
		      const cJSON *row, bool first)
{
	char *text;

	if (!ctl->json) {
		ctl_print_row(stdout, command->columns, row);
		if (command->columns == conn_columns)
			ctl_print_conn_more(stdout, row);
		return;
	}
	text = ctl_json_line(row);
	printf("%s\n%s", first ? "" : ",", text ? text : "null");
	free(text);
}

/* Writes the parameters of the next page; false: this is the last. */
static bool next_page(const struct ctl *ctl, const cJSON *page, char *params,
		      size_t len)
{
	const cJSON *next = cJSON_GetObjectItem(page, "next");

	if (!cJSON_IsString(next))
		return false;
	snprintf(params, len, "%s%scursor=%s", ctl->filter,
		 *ctl->filter ? "," : "", next->valuestring);
	return true;
}

/* Pages are printed as they come, so that none of a million rows is kept. */
static int run_list(struct ctl *ctl, const struct command *command)
{
	char params[600];
	bool first = true, more = true;

	snprintf(params, sizeof(params), "%s", ctl->filter);
	while (more) {
		cJSON *page = ctl_ask(&ctl->client, command->request, params);
		const cJSON *row;

		if (!page)
			return ctl_fail(ctl);
		if (first && ctl->json)
			putchar('[');
		else if (first)
			ctl_print_head(stdout, command->columns);
		cJSON_ArrayForEach(row, cJSON_GetObjectItem(page, command->key))
		{
			print_row(ctl, command, row, first);
			first = false;
		}
		if (first && !ctl->json)
			first = false; /* the head is there */
		more = next_page(ctl, page, params, sizeof(params));
		cJSON_Delete(page);
	}
	if (ctl->json)
		puts("\n]");
	return 0;
}

int ctl_print_answer(const struct ctl *ctl, cJSON *answer, const char *key)
{
	const cJSON *shown = key ? cJSON_GetObjectItem(answer, key) : answer;

	if (!answer)
		return ctl_fail(ctl);
	if (ctl->json)
		ctl_print_json(shown);
	else
		ctl_print_object(stdout, "", shown);
	cJSON_Delete(answer);
	return 0;
}

static int run_object(struct ctl *ctl, const struct command *command)
{
	const char *params =
		ctl->n_words > 1 ? ctl->words[ctl->n_words - 1] : "";

	return ctl_print_answer(ctl,
				ctl_ask(&ctl->client, command->request, params),
				command->key);
}

static int run_drop(struct ctl *ctl, const struct command *command)
{
	cJSON *row = ctl_ask(&ctl->client, command->request, ctl->words[1]);
	const char *peer;

	if (!row)
		return ctl_fail(ctl);
	peer = cJSON_GetStringValue(cJSON_GetObjectItem(row, "peer"));
	if (ctl->json)
		ctl_print_json(row);
	else
		printf("reset %s, peer %s\n", ctl->words[1], peer ? peer : "?");
	cJSON_Delete(row);
	return 0;
}

/* Asks for any command, even one of the program's own: "/name,params". */
static int run_ask(struct ctl *ctl, const struct command *command)
{
	char name[512], *comma;
	cJSON *answer;

	snprintf(name, sizeof(name), "%s", ctl->words[1]);
	comma = strchr(name, ',');
	if (comma)
		*comma++ = '\0';
	answer = ctl_ask(&ctl->client, name, comma ? comma : "");
	if (!answer)
		return ctl_fail(ctl);
	ctl_print_json(answer);
	cJSON_Delete(answer);
	return 0;
}

#define LIST(name_, key_, columns_, help_)                                     \
	{                                                                      \
		.name = name_, .arguments = "", .help = help_,                 \
		.run = run_list, .request = "/coronet/" name_, .key = key_,    \
		.columns = columns_                                            \
	}

static const struct command commands[] = {
	{.name = "conns",
	 .arguments = "[FILTERS]",
	 .help = "list connections, in the form of ss -ti",
	 .run = run_list,
	 .request = "/coronet/conns",
	 .key = "conns",
	 .columns = conn_columns,
	 .takes = CTL_FILTERS},
	{.name = "conn",
	 .arguments = "ID",
	 .least = 1,
	 .most = 1,
	 .help = "show everything about one connection",
	 .run = run_object,
	 .request = "/coronet/conn"},
	{.name = "drop",
	 .arguments = "ID",
	 .least = 1,
	 .most = 1,
	 .help = "reset a connection",
	 .run = run_drop,
	 .request = "/coronet/drop"},
	LIST("udp", "udp", udp_columns,
	     "list UDP sockets, their queues and drops"),
	LIST("listeners", "listeners", listener_columns,
	     "list listeners and their addresses"),
	LIST("shards", "shards", shard_columns,
	     "list shards and their main counters"),
	LIST("coros", "coros", coro_columns,
	     "list coroutines, and where they wait"),
	LIST("mem", "mem", mem_columns,
	     "show memory budgets, and what uses memory"),
	LIST("neigh", "neigh", neigh_columns, "list neighbours (ARP, IPv6)"),
	LIST("routes", "routes", route_columns,
	     "list networks, routes and gateways"),
	LIST("addr", "addrs", addr_columns, "list the stack's addresses"),
	{.name = "addr add",
	 .arguments = "ADDRESS/BITS [dev N]",
	 .least = 1,
	 .most = 3,
	 .help = "add an address to link N (default 1)",
	 .run = ctl_run_addr,
	 .request = "/coronet/addr.add"},
	{.name = "addr del",
	 .arguments = "ADDRESS/BITS [dev N]",
	 .least = 1,
	 .most = 3,
	 .help = "remove an address; its connections stay",
	 .run = ctl_run_addr,
	 .request = "/coronet/addr.del"},
	{.name = "route add",
	 .arguments = "PREFIX via GATEWAY ...",
	 .least = 1,
	 .most = 7,
	 .help = "add a route, as --route does",
	 .run = ctl_run_route,
	 .request = "/coronet/route.add"},
	{.name = "route del",
	 .arguments = "PREFIX via GATEWAY ...",
	 .least = 1,
	 .most = 7,
	 .help = "remove a route",
	 .run = ctl_run_route,
	 .request = "/coronet/route.del"},
	{.name = "links",
	 .arguments = "",
	 .help = "show ports, queues, drivers' counters",
	 .run = run_object,
	 .request = "/coronet/links",
	 .key = "links"},
	{.name = "log.level",
	 .arguments = "",
	 .help = "show the log's components and levels",
	 .run = run_object,
	 .request = "/coronet/log.level"},
	{.name = "set log.level",
	 .arguments = "[COMPONENT=]LEVEL",
	 .least = 1,
	 .most = 1,
	 .help = "set log levels, as in coronet.conn=info",
	 .run = run_object,
	 .request = "/coronet/log.level"},
	{.name = "set log.reopen",
	 .arguments = "",
	 .help = "reopen the log file after it was moved",
	 .run = run_object,
	 .request = "/coronet/log.reopen"},
	{.name = "metrics",
	 .arguments = "",
	 .help = "show where the page for Prometheus is",
	 .run = run_object,
	 .request = "/coronet/metrics.address"},
	{.name = "set metrics",
	 .arguments = "ADDRESS:PORT|off",
	 .least = 1,
	 .most = 1,
	 .help = "serve the page at this address; off: end it",
	 .run = run_object,
	 .request = "/coronet/metrics.address"},
	{.name = "exception",
	 .arguments = "",
	 .help = "show what the kernel gets of each link",
	 .run = run_list,
	 .request = "/coronet/exception",
	 .key = "exceptions",
	 .columns = exception_columns},
	{.name = "set exception",
	 .arguments = "[LINK,]RULE|off",
	 .least = 1,
	 .most = 1,
	 .help = "set this RULE, in the form of --exception",
	 .run = run_object,
	 .request = "/coronet/exception"},
	{.name = "trace.conns",
	 .arguments = "",
	 .help = "show how many connections keep events",
	 .run = run_object,
	 .request = "/coronet/trace.conns"},
	{.name = "set trace.conns",
	 .arguments = "N",
	 .least = 1,
	 .most = 1,
	 .help = "set that number, for later connections",
	 .run = run_object,
	 .request = "/coronet/trace.conns"},
	{.name = "capture",
	 .arguments = "FILE [FILTER]",
	 .least = 1,
	 .most = CTL_MAX_WORDS,
	 .help = "write packets; FILTER in tcpdump's syntax",
	 .run = ctl_run_capture,
	 .takes = CTL_LIMITS},
	{.name = "capture status",
	 .arguments = "",
	 .help = "show the state of the last capture",
	 .run = run_object,
	 .request = "/coronet/capture"},
	{.name = "capture stop",
	 .arguments = "",
	 .help = "end the capture, and wait for its file",
	 .run = ctl_run_capture_stop},
	{.name = "trace",
	 .arguments = "[PEER] [FILTERS]",
	 .most = 1,
	 .help = "show live what PEER's connections do",
	 .run = ctl_run_trace,
	 .takes = CTL_TRACE},
	{.name = "backends",
	 .arguments = "",
	 .help = "list coronet-proxy's backends, their queue",
	 .run = ctl_run_backends},
	{.name = "backend",
	 .arguments = "NAME [drain|ready|down]",
	 .least = 1,
	 .most = 2,
	 .help = "show a backend, or set its state",
	 .run = ctl_run_backend,
	 .request = "/proxy/backend"},
	{.name = "backend add",
	 .arguments = "SPEC",
	 .least = 1,
	 .most = 1,
	 .help = "add a backend; SPEC in the form of --to",
	 .run = ctl_run_backend_add,
	 .request = "/proxy/backend.add"},
	{.name = "backend remove",
	 .arguments = "NAME",
	 .least = 1,
	 .most = 1,
	 .help = "remove a backend; its sessions go on",
	 .run = ctl_run_backend_remove,
	 .request = "/proxy/backend.remove"},
	{.name = "backend weight",
	 .arguments = "NAME N",
	 .least = 2,
	 .most = 2,
	 .help = "set its weight; 0: no new sessions",
	 .run = ctl_run_backend_weight,
	 .request = "/proxy/backend.weight"},
	{.name = "reload",
	 .arguments = "",
	 .help = "make coronet-proxy read its files again",
	 .run = ctl_run_reload},
	{.name = "ask",
	 .arguments = "/COMMAND[,PARAMETERS]",
	 .least = 1,
	 .most = 1,
	 .help = "send any command; / lists them",
	 .run = run_ask},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* ---- the command line ---- */

static const struct command *find_command(const char *name)
{
	for (unsigned i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

/* "set log.level X": a command of two words is made one. */
static void join_words(struct ctl *ctl)
{
	static char name[64];

	if (ctl->n_words < 2)
		return;
	snprintf(name, sizeof(name), "%s %s", ctl->words[0], ctl->words[1]);
	if (!find_command(name))
		return;
	ctl->words[0] = name;
	memmove(&ctl->words[1], &ctl->words[2],
		(--ctl->n_words - 1) * sizeof(ctl->words[0]));
}

__attribute__((noreturn, format(printf, 1, 2))) static void
exit_usage(const char *format, ...)
{
	va_list ap;

	fputs("coronet-ctl: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(OPT_EXIT_USAGE);
}

/* Returns the command if its arguments are right; else it does not return. */
static const struct command *choose_command(const struct ctl *ctl)
{
	const struct command *c = find_command(ctl->words[0]);
	unsigned given = ctl->n_words - 1;

	if (!c)
		exit_usage("unknown command '%s'; coronet-ctl --help lists the "
			   "commands",
			   ctl->words[0]);
	if (given < c->least || given > c->most)
		exit_usage("%s: expected coronet-ctl %s%s%s", c->name, c->name,
			   *c->arguments ? " " : "", c->arguments);
	if (*ctl->filter && c->takes != CTL_FILTERS && c->takes != CTL_TRACE)
		exit_usage("%s takes no --peer, --port, --state or --handler",
			   c->name);
	if (*ctl->limits && c->takes != CTL_LIMITS)
		exit_usage("%s takes no --bytes, --packets or --snap", c->name);
	if ((ctl->count || ctl->seconds) && c->takes != CTL_TRACE)
		exit_usage("%s takes no --count or --seconds", c->name);
	return c;
}

/* Appends "key=value", with a comma between two; the program checks it. */
static int add_pair(char *pairs, size_t len, const char *key, const char *value,
		    struct opt_error *error)
{
	size_t used = strlen(pairs);

	if (!*value || strchr(value, ','))
		return opt_expect(error, "one value, without a comma");
	if (used + strlen(key) + strlen(value) + 3 > len)
		return opt_expect(error, "a shorter value");
	snprintf(pairs + used, len - used, "%s%s=%s", used ? "," : "", key,
		 value);
	return 0;
}

static int add_filter(const struct opt *opt, const char *text, void *base,
		      struct opt_error *error)
{
	struct ctl *ctl = base;

	return add_pair(ctl->filter, sizeof(ctl->filter), opt->name, text,
			error);
}

static int add_limit(const struct opt *opt, const char *text, void *base,
		     struct opt_error *error)
{
	struct ctl *ctl = base;

	return add_pair(ctl->limits, sizeof(ctl->limits), opt->name, text,
			error);
}

#define AT(member) OPT_AT(struct ctl, member)

static const struct opt rows[] = {
	{"control", OPT_TEXT, AT(path), "PATH",
	 .help = "Control socket of the program (default: the one in "
		 "$RUNTIME_DIRECTORY)"},
	{"json", OPT_FLAG, AT(json), .arg = NULL,
	 .help = "Print JSON; a list is one array"},
	{"peer", OPT_CUSTOM, .arg = "ADDRESS[/BITS]", .read = add_filter,
	 .example = "10.9.0.2 or --peer 10.9.0.0/16",
	 .help = "Show only connections of these peers"},
	{"port", OPT_CUSTOM, .arg = "N", .read = add_filter, .example = "7777",
	 .help = "Show only connections with this port, local or remote"},
	{"state", OPT_CUSTOM, .arg = "NAME", .read = add_filter,
	 .example = "ESTABLISHED",
	 .help = "Show only connections in this TCP state"},
	{"handler", OPT_CUSTOM, .arg = "NAME", .read = add_filter,
	 .example = "echo",
	 .help = "Show only connections whose handler's name begins with NAME"},
	{"bytes", OPT_CUSTOM, .arg = "SIZE", .read = add_limit,
	 .example = "10M",
	 .help = "Maximum size of a capture's file, as in 10M "
		 "(default " OPT_NUMBER_TEXT(NET_CAPTURE_MIB) "M)"},
	{"packets", OPT_CUSTOM, .arg = "N", .read = add_limit,
	 .example = "1000",
	 .help = "Maximum number of packets in a capture (default: as many as "
		 "the file holds)"},
	{"snap", OPT_CUSTOM, .arg = "N", .read = add_limit, .example = "128",
	 .help = "Number of bytes to capture of each packet (default: all)"},
	{"count", OPT_NUMBER, AT(count), "N", NULL, 1, TRACE_LIMIT_MAX,
	 .help = "End a trace after this many events", .example = "100"},
	{"seconds", OPT_NUMBER, AT(seconds), "N", NULL, 1, TRACE_LIMIT_MAX,
	 .help = "End a trace after this many seconds", .example = "10"},
};

OPT_SET(ctl_opts, rows, 0x100, NULL)

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct ctl *ctl = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		opt_begin(state);
		return 0;
	case ARGP_KEY_ARG:
		if (ctl->n_words == CTL_MAX_WORDS)
			exit_usage("'%s': too many words", arg);
		ctl->words[ctl->n_words++] = arg;
		return 0;
	default:
		return ctl_opts_parse(key, arg, state);
	}
}

/*
 * Appends the commands to the options of --help. Two blanks precede what a
 * command does, since the manual page and the completion are made from that,
 * and no line is so long that argp would break it.
 */
static char *help_filter(int key, const char *text, void *input)
{
	char *out = NULL;
	size_t len = 0;
	FILE *stream;

	if (key != ARGP_KEY_HELP_POST_DOC)
		return ctl_opts_help(key, text, input);
	stream = open_memstream(&out, &len);
	if (!stream)
		return (char *)text;
	fputs("Commands:\n", stream);
	for (unsigned i = 0; i < N_COMMANDS; i++) {
		char head[80];

		snprintf(head, sizeof(head), "%s %s", commands[i].name,
			 commands[i].arguments);
		fprintf(stream, "  %-31s  %s\n", head, commands[i].help);
	}
	fclose(stream);
	return out;
}

static const char *default_path(void)
{
	static char path[512];
	const char *folder = getenv("RUNTIME_DIRECTORY");

	if (!folder || !*folder)
		return NULL;
	snprintf(path, sizeof(path), "%.*s/dpdk/rte/dpdk_telemetry.v2",
		 (int)strcspn(folder, ":"), folder);
	return path;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = ctl_opts_options,
		.parser = parse_key,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "Queries and controls a running coronet program.\v",
		.help_filter = help_filter,
	};
	struct ctl ctl = {.path = default_path()};
	const struct command *command;
	int status, err;

	opts_set_version("coronet-ctl");
	if (argp_parse(&argp, argc, argv, 0, NULL, &ctl))
		return OPT_EXIT_USAGE;
	if (ctl.n_words == 0)
		exit_usage("a command is missing; coronet-ctl --help lists the "
			   "commands");
	join_words(&ctl);
	command = choose_command(&ctl);
	if (!ctl.path) {
		fprintf(stderr, "coronet-ctl: no control socket is named: use "
				"--control PATH, or set RUNTIME_DIRECTORY as "
				"the program's unit does\n");
		return 2;
	}
	if (ctl_open(&ctl.client, ctl.path) < 0)
		return ctl_fail(&ctl);
	status = command->run(&ctl, command);
	ctl_close(&ctl.client);
	err = fflush(stdout) != 0 ? errno : ferror(stdout) ? EIO : 0;
	if (err && status == 0) {
		fprintf(stderr, "coronet-ctl: standard output: %s\n",
			strerror(err));
		status = 1;
	}
	return status;
}
