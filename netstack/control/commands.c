/*
 * Requests and answers: rte_telemetry's protocol, version 2. A request is
 * "/name" or "/name,params"; the answer is an object whose only member has
 * the name of the command.
 */
#include "netstack/control/control_priv.h"

#include <coronet/net_control.h>

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_ADDED	32u
#define CLOCKS_APART_NS 20000
#define CLOCK_TRIES	8u
#define CLOCK_STEP_NS	1000000

static struct {
	pthread_mutex_t lock;
	unsigned n;
	struct added {
		const char *name, *help;
		net_control_fn fn;
		void *arg;
	} all[MAX_ADDED];
} added = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors ---- */

cJSON *net_control_error(const char *format, ...)
{
	char text[512];
	cJSON *error = cJSON_CreateObject();
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	cJSON_AddStringToObject(error, "error", text);
	return error;
}

void net_control_ask_reason(unsigned shard, int err, char *text, size_t len)
{
	if (err == -EAGAIN && net_ask_is_shut())
		err = -ESHUTDOWN;
	switch (err) {
	case -ETIMEDOUT:
		snprintf(text, len,
			 "shard %u has not answered for two seconds: a "
			 "coroutine may keep it (see the watchdog's lines in "
			 "the log)",
			 shard);
		break;
	case -EAGAIN:
		snprintf(text, len,
			 "the program is starting, or too many requests wait "
			 "for shard %u; ask again",
			 shard);
		break;
	case -EINVAL:
		snprintf(text, len, "there is no shard %u", shard);
		break;
	case -ESHUTDOWN:
		snprintf(text, len, "the program is ending");
		break;
	default:
		snprintf(text, len, "shard %u: %s", shard, strerror(-err));
	}
}

cJSON *net_control_ask_error(unsigned shard, int err)
{
	char text[256];

	net_control_ask_reason(shard, err, text, sizeof(text));
	return net_control_error("%s", text);
}

void net_control_addr(cJSON *to, const char *name, const struct net_addr *addr)
{
	char text[NET_ADDR_TEXT_MAX];

	cJSON_AddStringToObject(to, name,
				net_addr_format(addr, text, sizeof(text)));
}

void net_control_next(cJSON *to, unsigned shard, bool done, uint64_t at)
{
	char next[32];

	if (done && shard + 1 >= net_ask_shards())
		return;
	snprintf(next, sizeof(next), "%u:%" PRIu64, shard + done,
		 done ? 0 : at);
	cJSON_AddStringToObject(to, "next", next);
}

void net_control_number(cJSON *to, const char *name, uint64_t n)
{
	char text[24];

	if (n <= INT_MAX) {
		cJSON_AddNumberToObject(to, name, (double)n);
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu64, n);
	cJSON_AddRawToObject(to, name, text);
}

/* If the thread is suspended between the two clocks, they are read again. */
int64_t net_control_wall_offset_ns(void)
{
	int64_t before, after;
	struct timespec ts;
	unsigned tries = 0;

	do {
		before = glue_now_ns();
		clock_gettime(CLOCK_REALTIME, &ts);
		after = glue_now_ns();
	} while (after - before > CLOCKS_APART_NS && ++tries < CLOCK_TRIES);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec - after;
}

int64_t net_control_steady_offset(int64_t before, int64_t now)
{
	return llabs(now - before) > CLOCK_STEP_NS ? now : before;
}

/* ---- commands of every program ---- */

static cJSON *info_json(void)
{
	cJSON *to = cJSON_CreateObject();

	cJSON_AddStringToObject(to, "version", "coronet " CORONET_VERSION);
	cJSON_AddNumberToObject(to, "pid", (double)getpid());
	cJSON_AddNumberToObject(to, "max_output_len", NET_CONTROL_MAX_OUTPUT);
	return to;
}

static cJSON *show_info(const char *params)
{
	return info_json();
}

static cJSON *list_commands(const char *params);
static cJSON *show_help(const char *params);

static const struct net_command general[] = {
	{"/", "Lists the commands", list_commands},
	{"/help", "Describes a command. Parameter: its name", show_help},
	{"/info", "Version and process", show_info},
	{0},
};

static const struct net_command *const tables[] = {general,
						   net_conn_commands,
						   net_udp_commands,
						   net_table_commands,
						   net_link_commands,
						   net_exception_commands,
						   net_log_commands,
						   net_server_commands,
						   net_capture_commands,
						   net_trace_commands,
						   net_ring_commands,
						   net_addr_commands,
						   net_route_commands};
#define N_TABLES (sizeof(tables) / sizeof(tables[0]))

static cJSON *list_commands(const char *params)
{
	cJSON *names = cJSON_CreateArray();

	for (unsigned t = 0; t < N_TABLES; t++)
		for (const struct net_command *c = tables[t]; c->name; c++)
			cJSON_AddItemToArray(names,
					     cJSON_CreateString(c->name));
	pthread_mutex_lock(&added.lock);
	for (unsigned i = 0; i < added.n; i++)
		cJSON_AddItemToArray(names,
				     cJSON_CreateString(added.all[i].name));
	pthread_mutex_unlock(&added.lock);
	return names;
}

static const struct net_command *find_command(const char *name)
{
	for (unsigned t = 0; t < N_TABLES; t++)
		for (const struct net_command *c = tables[t]; c->name; c++)
			if (strcmp(c->name, name) == 0)
				return c;
	return NULL;
}

/* Returns a copy, as the table may grow meanwhile. No name: there is none. */
static struct added find_added(const char *name)
{
	struct added found = {0};

	pthread_mutex_lock(&added.lock);
	for (unsigned i = 0; i < added.n; i++)
		if (strcmp(added.all[i].name, name) == 0)
			found = added.all[i];
	pthread_mutex_unlock(&added.lock);
	return found;
}

static cJSON *show_help(const char *params)
{
	const char *name = params ? params : "/help";
	const struct net_command *command = find_command(name);
	struct added own = find_added(name);
	cJSON *to = cJSON_CreateObject();

	if (command)
		cJSON_AddStringToObject(to, name, command->help);
	else if (own.name)
		cJSON_AddStringToObject(to, name, own.help);
	return to;
}

/* ---- commands of programs ---- */

int net_control_add(const char *name, const char *help, net_control_fn fn,
		    void *arg)
{
	int err = 0;

	if (!name || name[0] != '/' || strchr(name, ',') || !help || !fn)
		return -EINVAL;
	if (find_command(name) || find_added(name).name)
		return -EEXIST;
	pthread_mutex_lock(&added.lock);
	if (added.n < MAX_ADDED)
		added.all[added.n++] = (struct added){name, help, fn, arg};
	else
		err = -ENOSPC;
	pthread_mutex_unlock(&added.lock);
	return err;
}

void net_commands_forget(void)
{
	pthread_mutex_lock(&added.lock);
	added.n = 0;
	pthread_mutex_unlock(&added.lock);
}

/* ---- answering ---- */

/* Runs a command. NULL: there is no such command, or no memory. */
static cJSON *run_command(const char *name, const char *params)
{
	const struct net_command *command = find_command(name);
	struct added own;
	char *text;
	cJSON *answer;

	if (command)
		return command->fn(params);
	own = find_added(name);
	if (!own.name)
		return NULL;
	text = own.fn(params, own.arg);
	answer = text ? cJSON_CreateRaw(text) : NULL;
	free(text);
	return answer;
}

/* Bytes of the character at `at`; 0: that is no UTF-8 (RFC 3629). */
static unsigned utf8_len(const unsigned char *at)
{
	unsigned n = at[0] < 0x80		     ? 1
		     : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
		     : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
		     : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
						     : 0;

	for (unsigned i = 1; i < n; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	/* longer than necessary, half of a UTF-16 pair, beyond U+10FFFF */
	if ((at[0] == 0xe0 && at[1] < 0xa0) ||
	    (at[0] == 0xed && at[1] > 0x9f) ||
	    (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
		return 0;
	return n;
}

char *net_control_make_utf8(char *text)
{
	unsigned n;

	for (char *at = text; at && *at; at += n ? n : 1) {
		n = utf8_len((const unsigned char *)at);
		if (n == 0)
			*at = '?';
	}
	return text;
}

static char *print_answer(const char *name, cJSON *answer)
{
	cJSON *all = cJSON_CreateObject();
	char *text;

	cJSON_AddItemToObject(all, name, answer ? answer : cJSON_CreateNull());
	text = cJSON_PrintUnformatted(all);
	cJSON_Delete(all);
	return net_control_make_utf8(text);
}

char *net_control_answer(const char *request)
{
	char name[NET_CONTROL_MAX_INPUT + 1];
	const char *comma = strchr(request, ',');
	size_t len = comma ? (size_t)(comma - request) : strlen(request);
	char *text;

	if (len >= sizeof(name))
		len = sizeof(name) - 1;
	memcpy(name, request, len);
	name[len] = '\0';
	text = print_answer(
		name, run_command(name, comma && comma[1] ? comma + 1 : NULL));
	if (text && strlen(text) >= NET_CONTROL_MAX_OUTPUT) {
		free(text);
		text = print_answer(
			name,
			net_control_error("the answer is longer than %u bytes",
					  NET_CONTROL_MAX_OUTPUT));
	}
	return text;
}

char *net_control_greeting(void)
{
	cJSON *info = info_json();
	char *text = cJSON_PrintUnformatted(info);

	cJSON_Delete(info);
	return text;
}
