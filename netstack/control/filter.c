/*
 * Filters of connections, for listings and traces.
 */
#include "netstack/control/control_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "netstack/options/opt.h"

static const char *const states[] = {
	"closed",      "listen",     "syn-sent",   "syn-received",
	"established", "fin-wait-1", "fin-wait-2", "close-wait",
	"closing",     "last-ack",   "time-wait",
};
#define N_STATES (sizeof(states) / sizeof(states[0]))

const char *net_state_name(enum net_tcp_state state)
{
	return (unsigned)state < N_STATES ? states[state] : "?";
}

static int read_state(const char *text, int *out)
{
	for (unsigned i = 0; i < N_STATES; i++)
		if (strcasecmp(text, states[i]) == 0) {
			*out = (int)i + 1;
			return 0;
		}
	return -EINVAL;
}

static int read_peer(const char *text, struct net_addr *out)
{
	if (strchr(text, '/'))
		return net_addr_parse_prefix(text, out);
	if (net_addr_parse(text, 0, out) < 0 || out->port)
		return -EINVAL;
	out->prefix_len = out->family == 4 ? 32 : 128;
	return 0;
}

static int read_port(const char *text, uint16_t *out)
{
	uint64_t n;

	if (opt_parse_number(text, 1, 65535, &n) < 0)
		return -EINVAL;
	*out = (uint16_t)n;
	return 0;
}

static int read_cursor(const char *text, struct net_filter *out)
{
	unsigned long long at;
	int end = 0;

	if (sscanf(text, "%3u:%18llu%n", &out->shard, &at, &end) != 2 ||
	    text[end])
		return -EINVAL;
	out->at = at;
	return 0;
}

static cJSON *take_word(char *word, struct net_filter *out)
{
	char *value = strchr(word, '=');

	if (!value)
		return net_control_error("'%s': expected KEY=VALUE", word);
	*value++ = '\0';
	if (strcmp(word, "peer") == 0) {
		if (read_peer(value, &out->peer) < 0)
			return net_control_error("peer '%s': expected an "
						 "address or a network, as in "
						 "10.9.0.1 or fd00::/64",
						 value);
	} else if (strcmp(word, "port") == 0) {
		if (read_port(value, &out->port) < 0)
			return net_control_error(
				"port '%s': expected a number from 1 to 65535",
				value);
	} else if (strcmp(word, "state") == 0) {
		if (read_state(value, &out->state) < 0)
			return net_control_error(
				"state '%s': expected a state of TCP, as in "
				"established or close-wait",
				value);
	} else if (strcmp(word, "handler") == 0) {
		snprintf(out->listener, sizeof(out->listener), "%s", value);
	} else if (strcmp(word, "cursor") == 0) {
		if (read_cursor(value, out) < 0)
			return net_control_error(
				"cursor '%s': expected the value of next in "
				"the previous page",
				value);
	} else {
		return net_control_error("'%s': expected peer=, port=, state=, "
					 "handler= or cursor=",
					 word);
	}
	return NULL;
}

cJSON *net_filter_parse(const char *params, struct net_filter *out)
{
	char text[NET_CONTROL_MAX_INPUT], *save = NULL;
	cJSON *wrong = NULL;

	memset(out, 0, sizeof(*out));
	if (!params)
		return NULL;
	snprintf(text, sizeof(text), "%s", params);
	for (char *word = strtok_r(text, ",", &save); word && !wrong;
	     word = strtok_r(NULL, ",", &save))
		wrong = take_word(word, out);
	return wrong;
}

/* Does an address lie in a network? */
static bool is_within(const struct net_addr *addr, const struct net_addr *net)
{
	unsigned whole = net->prefix_len / 8u, rest = net->prefix_len % 8u;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	return addr->family == net->family &&
	       memcmp(addr->ip, net->ip, whole) == 0 &&
	       (!rest || !((addr->ip[whole] ^ net->ip[whole]) & mask));
}

bool net_filter_takes(const struct net_filter *filter,
		      const struct net_conn *conn)
{
	const struct tcp_pcb *pcb = &conn->pcb;

	if (filter->port && pcb->local_port != filter->port &&
	    pcb->remote_port != filter->port)
		return false;
	if (filter->state && (int)pcb->state + 1 != filter->state)
		return false;
	if (filter->peer.family) {
		struct net_addr peer;

		net_addr_from_lwip(&pcb->remote_ip, pcb->remote_port, &peer);
		if (!is_within(&peer, &filter->peer))
			return false;
	}
	return !filter->listener[0] ||
	       strncmp(net_handler_name(conn), filter->listener,
		       strlen(filter->listener)) == 0;
}
